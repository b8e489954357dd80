"""A process of classes: another search in the same family, finite differences, steps too long."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.functional import log_softmax

import gilib
from gilib.kernels import RBF
from gilib.models.processes import contrasts
from gilib.training.rules.collapsed import classes as own
from tests.support import D, assert_equal, normals, seeded
from tests.support.sparse import X, finite_difference, train

LABELS = {2: (X[:, 0] + 0.5 * normals(30, seed=2) > 0).long(), 3: (2 * X[:, 0] + normals(30, seed=2)).long()}
LABELS[3] = LABELS[3].clamp(-1, 1) + 1
NONE, ONES = torch.zeros(()), torch.ones(30, dtype=D)


@pytest.fixture(autouse=True)
def settled_well(monkeypatch):
    monkeypatch.setattr(own, "SETTLED", 1e-12)


def bound_of(model, count, rows=slice(None), weights=ONES):
    return model.bound(X[rows], LABELS[count][rows], weights, NONE)


def model(count, points=X, variance=4.0, jitter=0.0):
    kernel = RBF(lengthscale=1.3, variance=variance)
    net = gilib.models.gp_classifier(2, count, inducing_points=points, kernel=kernel, dtype=D, jitter=jitter)
    return net, own.process_of_classes(net, gilib.Categorical())


def searched(net):
    return [p for name, p in net.named_parameters() if "hyper" in name]


@pytest.mark.parametrize(("count", "points"), [(2, X[::2]), (3, X[::3])])
def test_no_search_in_the_family_finds_a_better_posterior(count, points):
    """L-BFGS on q(g(Z)) = N(L m, L S (L S)ᵀ), where L is a factor of the prior, in covariances of outputs."""
    net, found = model(count, points)
    kernel = next(iter(net.layers)).hyperparameters()
    prior = MultivariateNormal(torch.zeros(len(points), dtype=D), kernel.gram(points).detach())
    project = torch.linalg.solve(prior.covariance_matrix, kernel.cross(points, X).detach()).mT
    left = kernel.diagonal(X).detach() - (project @ prior.covariance_matrix * project).sum(-1)
    mean = torch.zeros(count - 1, len(points), dtype=D, requires_grad=True)
    root = torch.zeros(count - 1, len(points), len(points), dtype=D, requires_grad=True)
    search = torch.optim.LBFGS([mean, root], max_iter=80, line_search_fn="strong_wolfe")

    def bound():
        factor = root.tril(-1) + root.diagonal(dim1=-2, dim2=-1).exp().diag_embed()
        joint = MultivariateNormal(mean @ prior.scale_tril.mT, scale_tril=prior.scale_tril @ factor)
        variance = left[:, None] + (project @ joint.covariance_matrix * project).sum(-1).mT
        outputs = project @ joint.mean.mT + variance.sqrt() * own.standard_normals(count - 1)[:, None]
        fit = log_softmax(outputs @ contrasts(count), -1)[:, torch.arange(30), LABELS[count]].mean(0).sum()
        return fit - kl_divergence(joint, prior).sum()

    def loss():
        search.zero_grad()
        value = -bound()
        value.backward()
        return value

    search.step(loss)
    assert_equal(bound_of(found, count).detach(), bound().detach(), 1e-4)


@pytest.mark.parametrize("count", [2, 3])
def test_the_gradient_is_that_of_finite_differences(count):
    net, found = model(count)
    parameters = searched(net)
    slopes = torch.autograd.grad(bound_of(found, count), parameters)
    for parameter, slope in zip(parameters, slopes, strict=True):
        for place in range(parameter.numel()):
            wanted = finite_difference(lambda: bound_of(found, count), parameter, place, 1e-4)
            assert float(slope.view(-1)[place]) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("count", [2, 3])
def test_the_bound_is_the_elbo_of_the_network(count):
    """Within six standard errors of the draws, and half a per cent for the 128 normals."""
    net, found = model(count, X[::3])
    value = found.solve_posterior(X, LABELS[count], ONES)
    drawn = net.estimate(4000, 30, generator=seeded())
    each = gilib.Categorical().log_prob(drawn(X), LABELS[count]).sum(-1) + drawn.log_pq
    error = 6.0 * float(each.std()) / math.sqrt(4000)
    assert abs(float(each.mean() - value)) < error + 0.005 * abs(float(value))


def test_steps_that_are_too_long_are_shortened(monkeypatch):
    """Left alone, whole steps of two contrasts diverge where the kernel's variance is large."""
    monkeypatch.setattr(own, "SETTLED", 1e-6)
    _, calm = model(3, variance=300.0)
    best = bound_of(calm, 3).detach()
    monkeypatch.setattr(own, "STEP", 1.0)
    _, guarded = model(3, variance=300.0)
    assert_equal(bound_of(guarded, 3).detach(), best, 1e-3)
    with torch.no_grad():
        at, values = own.features_of(calm.process.inducing(), X), []
        calm.moments = calm.precision = torch.zeros(30, 2, dtype=D)
        for _ in range(15):
            value, calm.moments, calm.precision = calm._bound(*at, LABELS[3], ONES)
            values.append(float(value))
    assert min(values[10:]) < float(best) - 1.0
    found, calls = own.ProcessOfClasses._bound, []
    monkeypatch.setattr(own.ProcessOfClasses, "_bound", lambda *data: calls.append(data) or found(*data))
    bound_of(model(3, variance=1e4, jitter=1e-9)[1], 3)
    assert len(calls) < 2000  # steps grow again: 16535 if they stay short


def test_contrasts_are_orthonormal_and_free_of_what_logits_share():
    rows = contrasts(5)
    assert_equal(rows @ rows.mT, torch.eye(4, dtype=D), 1e-12)
    assert_equal(rows.mT @ rows, torch.eye(5, dtype=D) - 0.2, 1e-12)


def test_a_training_raises_the_bound_and_ends(monkeypatch):
    monkeypatch.setattr(own, "SETTLED", 1e-6)
    net, found = model(3, jitter=1e-9)
    before = float(bound_of(found, 3)) / 30
    history = train(net, gilib.Categorical(), X, LABELS[3])
    assert len(history.elbo) < 60 and float(history.elbo[-1]) > before
    predicted = gilib.predict(net, gilib.Categorical(), X, 100, generator=seeded())
    assert (predicted.classes == LABELS[3]).double().mean() > 0.7


def logits(found, x):
    """Under the posterior that the network has."""
    white, left = own.features_of(found.process.inducing(), x)
    mean, root = found.process.posterior.gaussian_parameters
    return found._outputs(white @ mean, left[:, None] + (white @ root.tril()).square().sum(-1).mT)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("spread", [1.0, 1.2], ids=["best", "near"])
def test_a_point_left_out_is_predicted_as_by_the_others(count, spread):
    """By Q of the others alone, for every third point; under Q of all points labels are likelier."""
    net, found = model(count, X[::6])
    found.solve_posterior(X, LABELS[count], ONES)
    found.process.posterior.root.data.mul_(spread)

    def log_probability(outputs, labels):
        return (gilib.Categorical().log_prob(outputs, labels).logsumexp(0) - math.log(own.NODES)).detach()

    left_out = log_probability(found.left_out(X, LABELS[count], ONES), LABELS[count])
    assert (log_probability(logits(found, X), LABELS[count]) - left_out).max() > 0.2
    for n in range(0, 30, 3):
        others = torch.arange(30) != n
        _, alone = model(count, X[::6])
        alone.solve_posterior(X[others], LABELS[count][others], ONES[others])
        truth = log_probability(logits(alone, X[n, None]), LABELS[count][n, None])
        assert abs(float(left_out[n] - truth)) < 0.05


def test_other_networks_are_refused():
    net = gilib.models.sparse_gp(2, 3, inducing_points=X, dtype=D)
    with pytest.raises(ValueError, match=r"as gilib\.models\.gp_classifier makes it"):
        train(net, gilib.Categorical(), X, LABELS[3])
    with pytest.raises(ValueError, match="classes must be an integer of at least 2, got 1"):
        gilib.models.gp_classifier(2, 1, inducing_points=X)


def test_a_row_of_weight_three_is_three_rows():
    weights, ((_, weighted), (_, repeated)) = 1 + torch.arange(30) % 3, (model(3, X[::3]) for _ in range(2))
    rows = torch.arange(30).repeat_interleave(weights)
    value, wanted = bound_of(weighted, 3, weights=weights.double()), bound_of(repeated, 3, rows, ONES[rows])
    assert_equal(value.detach(), wanted.detach(), 1e-8)
