"""The inputs' moments of all points, once: the same posterior with all of them, a sound one with few."""

import pytest
import torch
from torch import nn

import gilib
from gilib.regression import joint
from gilib.regression.joint import JointState, Place, averaged_with, factored, gram_of
from gilib.training import Bali
from gilib.training.rules import bali
from tests.support import D, assert_equal, layerwise, normals
from tests.support.layerwise import ALPHA, B, N, X, dense, fit, model, network, noise, regressions

KEPT = Bali(ALPHA, keep_moments=True)


@pytest.mark.parametrize("settings", [{}, {"num_samples": 2}, {"estimator": "pointwise"}], ids=str)
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_with_all_points_a_step_it_changes_nothing(settings, rate):
    """Where the prior's strength is constant."""
    nets = [model(), model()]
    for net, keep in zip(nets, (False, True), strict=True):
        rule = Bali(ALPHA, rate, "relative", keep_moments=keep)
        history = fit(net, noise(), rule=rule, **settings)
        assert bool(history.elbo.isfinite().all())
    layerwise.assert_same_states(*nets, 1e-10)


POINTS, I, O, SEEN, C = 400, 30, 3, slice(0, 40), 10.0  # noqa: E741
INPUTS, PRIOR = normals(POINTS, I, seed=1), torch.linspace(0.1, 0.3, I, dtype=D)
WHOLE = PRIOR.diag() + INPUTS.mT @ INPUTS


def one_step(targets, centre, mean, psi, rate):
    """The new state after a minibatch of the first 40 points."""
    precision, tril = factored(INPUTS.mT @ INPUTS, PRIOR)
    state = JointState(mean, precision, tril, torch.linalg.cholesky(psi), torch.zeros_like(mean))
    x, left = INPUTS[SEEN], targets[SEEN] - INPUTS[SEEN] @ centre
    rate, place = torch.tensor(rate, dtype=D), Place(centre, tril.mT @ (centre - mean))

    def scatter(delta):
        rest = left - x @ delta
        return C * rest.mT @ rest

    return averaged_with(state, C * x.mT @ left, PRIOR, 0.5, rate, place, scatter)


def test_a_step_against_normal_equations():
    """The new mean by solving them with V⁻¹, whatever the place; Ψ by quadratic forms at that mean."""
    targets, mean, psi = normals(POINTS, O, seed=2), normals(I, O, seed=3), 2 * torch.eye(O, dtype=D)
    rate = 0.2
    centre = mean + 0.1 * normals(I, O, seed=4)
    after = one_step(targets, centre, mean, psi, rate)
    x, y = INPUTS[SEEN], targets[SEEN]
    slope = C * x.mT @ (y - x @ centre) - PRIOR[:, None] * centre
    right = WHOLE @ mean + rate * (WHOLE @ (centre - mean) + slope)
    assert_equal(after.mean, torch.linalg.solve(WHOLE, right), 1e-10)
    moved, left = after.mean - mean, y - x @ after.mean
    old = psi + moved.mT @ WHOLE @ moved
    new = 0.5 * torch.eye(O, dtype=D) + after.mean.mT @ PRIOR.diag() @ after.mean + C * left.mT @ left
    assert_equal(after.scale_tril @ after.scale_tril.mT, (1 - rate) * old + rate * new, 1e-10)


def test_it_is_sound_where_one_joint_matrix_would_not_be():
    """Residuals in the direction of most leverage: the corner that is left of such a matrix is negative."""
    x = INPUTS[SEEN]
    leverage, directions = torch.linalg.eigh(C * x @ torch.linalg.solve(WHOLE, x.mT))
    assert float(leverage[-1]) > 1.0
    targets = torch.zeros(POINTS, 1, dtype=D)
    targets[SEEN] = 10 * directions[:, -1:]
    zero, one = torch.zeros(I, 1, dtype=D), torch.eye(1, dtype=D)
    cross = C * x.mT @ targets[SEEN]
    corner = 0.5 + C * targets.square().sum() - cross.mT @ torch.linalg.solve(WHOLE, cross)
    assert float(corner) < 0.0
    after = one_step(targets, zero, zero, one, 1.0)
    assert float(after.scale_tril.square()) >= 0.5


@pytest.mark.parametrize("size", [5, 150])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_moments_of_many_points(size, lead, monkeypatch):
    """A few at a time, with and without a column of ones."""
    monkeypatch.setattr(joint, "AT_ONCE", 7)
    x = normals(*lead, 30, size, seed=1)
    wide = torch.cat([x, torch.ones(*lead, 30, 1, dtype=D)], -1)
    assert_equal(gram_of(x, 0.5).tril(), (0.25 * x.mT @ x).tril(), 1e-12)
    assert_equal(gram_of(x, 0.5, bias=True).tril(), (0.25 * wide.mT @ wide).tril(), 1e-12)


def test_the_factor_is_renewed_where_the_prior_has_moved_by_a_tenth(monkeypatch):
    """V⁻¹ (M' - M) = γ (V⁻¹ (A - M) + c XᵀD - κ V_0⁻¹ A) by the latest κ; V⁻¹ has that of the last time."""
    averaged, seen = bali.KeptRegression.averaged, []

    def observed(self, batch, strength, rate, place):
        mean, last = self.posterior.mean.clone(), self.strengths[0]
        state = averaged(self, batch, strength, rate, place)
        average, used = self.strengths
        before = seen[-1] if seen else torch.zeros((), dtype=D)
        assert_equal(average, torch.lerp(last, strength, rate) if seen else strength, 1e-12)
        assert bool((used == average) == ((average - before).abs() > 0.1 * before))
        seen.append(used)
        whole = self.known.tril() + self.known.tril(-1).mT + torch.diag_embed(used * self.prior)
        assert_equal(state.precision.tril(), whole.tril(), 1e-12)
        assert_equal(state.precision_tril @ state.precision_tril.mT, whole, 1e-12)
        slope = batch.cross - (strength * self.prior)[:, None] * place.centre
        right = whole @ mean + rate * (whole @ (place.centre - mean) + slope)
        assert_equal(state.mean, torch.linalg.solve(whole, right), 1e-9)
        return state

    monkeypatch.setattr(bali.KeptRegression, "averaged", observed)
    fit(model(), noise(), rule=KEPT, steps=60, batch_size=B)
    assert len(seen) == 60 and 2 < len(set(map(float, seen))) < 40


def test_where_no_flag_is_read_it_follows_the_same_rule(monkeypatch):
    """As on an accelerator: there V⁻¹ is factored at every step, and kept where it is time."""
    means = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr(bali, "readable", lambda values: False)
        net = model()
        fit(net, noise(), rule=KEPT, steps=60, batch_size=B)
        means.append(regressions(net)[0].mean)
    assert_equal(*means, 1e-9)


def test_a_second_training_goes_on():
    """Its first step takes the factor of all points, whoever trained before."""
    net = model()
    fit(net, noise(), rule=Bali(ALPHA))
    before = regressions(net)[0].mean.clone()
    fit(net, noise(), steps=1, rule=Bali(1e-9, update_rate=1e-6, keep_moments=True))
    after = regressions(net)[0]
    assert int(after.steps) == layerwise.STEPS + 1
    assert float((after.mean - before).norm() / before.norm()) < 0.5
    features = torch.cat([X, torch.ones(N, 1, dtype=D)], 1) / 3**0.5
    excess = (after.precision - features.mT @ features).tril()  # κ V_0⁻¹
    assert_equal(excess, excess[0, 0] * torch.eye(3, dtype=D), 1e-10)
    assert float(excess[0, 0]) > 0.0


def test_what_it_does_not_serve():
    images = gilib.Conv2d(1, 2, 1, gilib.posteriors.Conjugate()), nn.Flatten(), dense(8, 2)
    with pytest.raises(ValueError, match="the first layer is .*Tanh"):
        fit(network(nn.Tanh(), dense(2, 2)), noise(), rule=KEPT)
    with pytest.raises(ValueError, match="the first layer is Conv2d"):
        fit(network(*images, shape=(1, 2, 2)), noise(), torch.zeros(120, 1, 2, 2, dtype=D), rule=KEPT)
    with pytest.raises(ValueError, match="never change, but augment changes them"):
        fit(model(), noise(), rule=KEPT, augment=lambda x, generator: x.clone())
