"""Predictions with drawn functions, or every point by itself; in batches, by replica, in any units."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

import gilib
from gilib.data import Normalisation
from tests.support import D, assert_equal, normals, seeded, shaken, small_net


@pytest.fixture(scope="module")
def net():
    return small_net(gilib.GlobalInducing())


X, Y = normals(7, 2), normals(7, 2, seed=1)


@pytest.mark.parametrize("batch_size", [None, 2, 100])
def test_predict_draws_once_and_evaluates_in_batches(net, batch_size):
    """Without a graph or global noise."""
    likelihood, state = gilib.Gaussian(0.3, learn=True), torch.get_rng_state()
    found = gilib.predict(net, likelihood, X, batch_size=batch_size, generator=seeded(3))
    assert torch.equal(state, torch.get_rng_state()) and not found.sd.requires_grad
    outputs = net.draw(100, generator=seeded(3))(X).detach()
    assert_equal(found.means, outputs)
    assert_equal(found.mean, outputs.mean(0))
    assert_equal(found.sd, (outputs.var(0, correction=0) + 0.3).sqrt())
    assert_equal(found.log_prob(Y), gilib.metrics.log_mean_exp(likelihood.log_prob(outputs, Y).detach()))
    labels = torch.arange(7) % 2
    found = gilib.predict(net, gilib.Categorical(), X, batch_size=batch_size, generator=seeded(3))
    averaged = outputs.softmax(-1).mean(0)
    assert_equal(found.mean, averaged)
    assert_equal(found.mean.sum(-1), torch.ones(7))
    assert_equal(found.log_prob(labels), averaged[torch.arange(7), labels].log())


def test_predictions_in_original_units(net):
    centre, factor = torch.tensor([10.0, -4.0], dtype=D), torch.tensor([5.0, 0.1], dtype=D)
    x_mean, x_std = torch.tensor([3.0, -1.0], dtype=D), torch.tensor([2.0, 0.5], dtype=D)
    units = Normalisation(x_mean, x_std, centre, factor)
    scaled = gilib.predict(net, gilib.Gaussian(0.3), X, 5, generator=seeded(3))
    settings = {"normalisation": units, "generator": seeded(3)}
    original = gilib.predict(net, gilib.Gaussian(0.3), units.invert_x(X), 5, **settings)
    assert_equal(original.mean, centre + factor * scaled.mean, 1e-10)
    assert_equal(original.sd, factor * scaled.sd, 1e-10)
    assert_equal(original.quantile(0.1), centre + factor * scaled.quantile(0.1), 1e-9)
    shifted = scaled.log_prob(Y) - math.log(5.0) - math.log(0.1)
    assert_equal(original.log_prob(units.invert_y(Y)), shifted, 1e-9)


def test_replicas():
    net, likelihood = small_net(gilib.GlobalInducing(), replicas=(2,)), gilib.Gaussian(0.3, replicas=(2,))
    with torch.no_grad():
        likelihood.scaled_log_variance[1] = 0.0
    prediction = gilib.predict(net, likelihood, X, 5, generator=seeded())
    assert prediction.mean.shape == prediction.sd.shape == prediction.quantile(0.3).shape == (2, 7, 2)
    assert prediction.log_prob(X).shape == (2, 7)
    noise = prediction.sd.square() - prediction.function_sd.square()
    assert_equal(noise, torch.tensor([0.3, 1.0], dtype=D)[:, None, None].expand(2, 7, 2), 1e-10)
    for x in (normals(3, 7, 2), normals(5, 2, 7, 2)):
        with pytest.raises(ValueError, match=r"x must have shape \[N, 2\] or \[2, N, 2\], got"):
            gilib.predict(net, likelihood, x, 5)
    assert gilib.predict(net, likelihood, normals(2, 7, 2), 5).mean.shape == (2, 7, 2)


@pytest.mark.parametrize(("batch_size", "replicas"), [(None, ()), (1, ()), (4, (2,))])
def test_outputs_that_are_images_come_in_batches_of_points(batch_size, replicas):
    layers = [gilib.Conv2d(1, 2, 3, gilib.Factorised()), nn.MaxPool2d(2)]
    net = gilib.Network(None, layers, input_shape=(1, 8, 8), replicas=replicas, dtype=D, generator=seeded())
    x = normals(6, 1, 8, 8)
    prediction = gilib.predict(net, gilib.Gaussian(0.3), x, 3, batch_size=batch_size, generator=seeded(3))
    assert_equal(prediction.means, net.draw(3, generator=seeded(3))(x).detach())
    assert prediction.mean.shape == prediction.sd.shape == (*replicas, 6, 2, 4, 4)


class Laplace(gilib.likelihoods.Likelihood):
    def distribution(self, outputs):
        each = torch.distributions.Laplace(outputs, 0.5, validate_args=False)
        return torch.distributions.Independent(each, 1, validate_args=False)


def test_a_likelihood_is_a_distribution():
    """All follows from one method; of an ensemble, in original units."""
    net, x = small_net(gilib.GlobalInducing(), replicas=(3,)), normals(7, 2)
    units = gilib.data.Normalisation.fit(normals(20, 2), 3.0 + 2.0 * normals(20, 2, seed=1))
    ensemble = gilib.Ensemble(net)
    found = gilib.predict(ensemble, Laplace(), x, 4, normalisation=units, generator=seeded())
    means = units.invert_y(ensemble.draw(4, generator=seeded())(units.x(x)))
    dist = scipy.stats.laplace(means.detach().numpy(), 0.5 * units.y_std.numpy())
    assert repr(found) == "MixturePrediction(12 components, mean [7, 2])"
    assert_equal(found.mean, dist.mean().mean(0), 1e-12)
    assert_equal(found.function_sd, means.std(0, correction=0).detach(), 1e-12)
    assert_equal(found.sd, np.sqrt(dist.var().mean(0) + dist.mean().var(0)), 1e-12)
    assert_equal(found.log_prob(x), np.log(np.exp(dist.logpdf(x.numpy()).sum(-1)).mean(0)), 1e-12)
    for probability in (1e-4, 0.3, 0.95):
        at = found.quantile(probability)
        reached = torch.from_numpy(dist.cdf(at.numpy()).mean(0))
        assert_equal(reached, torch.full((7, 2), probability, dtype=D), 1e-12)


@pytest.mark.parametrize("thing", [nn.Linear(2, 2), gilib.Network, None])
def test_what_draws_no_functions(thing):
    with pytest.raises(TypeError, match="predict needs what draws functions .* got"):
        gilib.predict(thing, gilib.Gaussian(0.3), normals(7, 2))


def trained(**settings):
    """A network that has seen inputs between -1 and 1, and a constant one."""
    net = small_net(gilib.GlobalInducing(), **settings)
    x = normals(20, 2).clamp(-1, 1)
    x[:, 1] = 0.0
    gilib.fit(net, gilib.Gaussian(0.1), x, x, steps=1, progress=False)
    return net


@pytest.mark.parametrize("make", [trained, lambda: gilib.Ensemble(trained(replicas=(2,)))])
def test_inputs_in_other_units_are_warned_of(make):
    far = torch.tensor([[7.1, 0.0], [0.0, -500.0], [0.1, 0.0]], dtype=D)  # three widths are 6
    one = torch.ones(2, dtype=D)
    for units, words in (
        (None, "those of the training: were"),
        (gilib.data.Normalisation(0 * one, one, 0 * one, one), ".* in other units?"),
    ):
        with pytest.warns(UserWarning, match=f"2 of 3 inputs lie far outside {words}"):
            gilib.predict(make(), gilib.Gaussian(0.1), far, 2, normalisation=units)


def test_labels_as_pseudo_outputs():
    labels = torch.tensor([2, 0, 1, 1, 2])
    for given in (labels, labels.numpy()):
        net = gilib.models.mlp(2, (3,), 3, inducing_points=normals(5, 2), pseudo_outputs=given)
        outputs = list(net.layers)[-1].weights.pseudo.outputs.detach()
        assert torch.equal(outputs.argmax(1), labels) and outputs.unique().tolist() == [-2.0, 2.0]
    with pytest.raises(ValueError, match="class labels must lie in 0 ... 1, got 0 ... 2"):
        gilib.models.mlp(2, (3,), 2, inducing_points=normals(5, 2), pseudo_outputs=labels)


@pytest.fixture(scope="module")
def on_yacht():
    split = gilib.data.load_uci("yacht").split(0)
    start = {"inducing_points": split.train_x[:5], "pseudo_outputs": split.train_y[:5]}
    net = gilib.models.mlp(6, (3,), 1, generator=seeded(), **start)
    gilib.fit(net, gilib.Gaussian(0.1), split.train_x, split.train_y, steps=1, progress=False)
    return net, split


def test_a_column_that_never_meets_the_training_is_warned_of(on_yacht):
    """Inputs of size one in place of normalised ones: none is three widths away."""
    net, split = on_yacht
    with pytest.warns(UserWarning, match="column 2 of x lies outside .* were those normalised"):
        gilib.predict(net, gilib.Gaussian(0.1), split.test_x_raw.float(), 2)


def test_what_is_not_warned_of(on_yacht):
    """Of all points: extrapolation by three widths, one of three far away, right units, an untrained network.

    Of columns: right units, a few points, a share, a column that hardly varied, extrapolation nearby.
    """
    net, split = on_yacht
    x, raw, noise, narrow = split.test_x, split.test_x_raw.float(), gilib.Gaussian(0.1), trained()
    some, near = x.clone(), x.clone()
    some[: len(x) // 2, 5] = 5.0
    low, high = net.trained_range
    near[:, 5] = high[5] + 0.2 * (high[5] - low[5])
    still, far = small_net(gilib.GlobalInducing()), torch.full((3, 2), 1000.0, dtype=D)
    away = torch.tensor([[6.9, 0.5], [-6.9, 0.0], [900.0, 0.0]], dtype=D)
    unit = Normalisation(far[0], 1.0 + 0 * far[0], 0 * far[0], 1.0 + 0 * far[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for points in (x, raw[:1], raw[:4], some, near):
            gilib.predict(net, noise, points, 2)
        gilib.predict(net, noise, raw + 4 * raw.std(0), 2, normalisation=split.normalisation)
        gilib.predict(narrow, noise, away, 2)
        gilib.predict(narrow, noise, far, 2, normalisation=unit)
        gilib.predict(still, noise, far, 2)
        still.trained_range = torch.tensor([[-1.0, 0.0], [1.0, 1e-3]], dtype=D)
        gilib.predict(still, noise, torch.tensor([[0.0, 3e-3]] * 9, dtype=D), 2)


@pytest.mark.parametrize("pointwise", [False, True])
def test_a_network_that_gives_no_numbers_is_warned_of(pointwise):
    net = small_net(gilib.Factorised())
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    with pytest.warns(UserWarning, match="drawn functions give no numbers .* predictions are NaN"):
        found = gilib.predict(net, gilib.Gaussian(0.1), normals(3, 2), 2, pointwise=pointwise)
    assert bool(found.mean.isnan().all())


TIMES = 1.7e9 + np.sort(np.random.default_rng(0).uniform(0.0, 600.0, 50))[:, None]  # seconds since 1970
VALUES = np.stack([np.sin(TIMES[:, 0] / 60.0), np.cos(TIMES[:, 0] / 60.0)], 1)
LIKELIHOODS = {
    "one noise": lambda: gilib.Gaussian(0.3),
    "correlated": lambda: gilib.likelihoods.CorrelatedGaussian(2, learn=True),
}


def model(**settings):
    return gilib.models.mlp(1, (5,), 2, posterior=gilib.Factorised(), generator=seeded(), **settings)


def predicted(net, likelihood, x, normalisation):
    return gilib.predict(net, likelihood, x, 20, normalisation=normalisation, generator=seeded(3))


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_arrays_keep_their_digits_until_they_are_normalised(dtype):
    net, normalisation = model(dtype=dtype), Normalisation.fit(TIMES, VALUES)
    tensor, noise = torch.from_numpy(TIMES), gilib.Gaussian(0.3)
    found, wanted = (predicted(net, noise, x, normalisation) for x in (TIMES, tensor))
    assert torch.equal(found.means, wanted.means)
    inside = predicted(net, noise, normalisation.x(tensor).to(dtype), None)
    assert_equal(normalisation.y(found.mean), inside.mean.double(), 1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("targets", [np.asarray, torch.from_numpy])
def test_an_offset_of_the_targets_changes_no_density(name, targets):
    net, likelihood, found = model(), LIKELIHOODS[name](), []
    for offset in (0.0, 1e6, 1e8):
        normalisation = Normalisation.fit(TIMES, VALUES + offset)
        prediction = predicted(net, likelihood, TIMES, normalisation)
        assert prediction.mean.dtype == D
        found.append(prediction.log_prob(targets(VALUES + offset)))
        assert_equal(prediction.mean - offset, predicted(net, likelihood, TIMES, NEAR).mean, 1e-6)
    assert_equal(found[1], found[0], 1e-6)
    assert_equal(found[2], found[0], 1e-5)


NEAR = Normalisation.fit(TIMES, VALUES)


def test_students_predictions_keep_their_digits_too():
    net = gilib.models.mlp(1, (5,), 2, posterior=gilib.posteriors.Conjugate())
    likelihood = gilib.Gaussian(1.0, learn=True)
    x, y = (torch.from_numpy(v).float() for v in (NEAR.x(TIMES), NEAR.y(VALUES)))
    gilib.fit(net, likelihood, x, y, steps=3, rule=gilib.training.Bali(), num_samples=1, progress=False)
    found = []
    for offset in (0.0, 1e7):
        settings = {"normalisation": Normalisation.fit(TIMES, VALUES + offset), "generator": seeded(3)}
        prediction = gilib.prediction.predict_student(net, TIMES, 20, **settings)
        found.append(prediction.log_prob(VALUES + offset))
    assert_equal(found[1], found[0], 1e-6)


def test_a_replica_that_broke_down_leaves_the_others_alone():
    net = small_net(gilib.GlobalInducing(), replicas=(3,))
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=(3,)).to(D)
    x, y = normals(9, 2), normals(9, 2, seed=1)
    rule, seeds = gilib.Adam([0.01, 1e4, 0.02]), [0, 1, 2]
    settings = {"rule": rule, "seed": seeds, "on_divergence": "freeze", "progress": False, "num_samples": 1}
    history = gilib.fit(net, likelihood, x, y, steps=40, **settings)
    assert (history.diverged_at >= 0).tolist() == [False, True, False]
    with torch.no_grad():
        next(p for name, p in net.named_parameters() if "log" in name)[1] = float("nan")
    with pytest.warns(UserWarning, match=r"replicas \[1\] give no numbers .* their predictions are NaN"):
        prediction = gilib.predict(net, likelihood, x, 5)
    assert prediction.mean[[0, 2]].isfinite().all() and prediction.log_prob(y)[[0, 2]].isfinite().all()
    assert prediction.mean[1].isnan().all()
    member = r"members \[1\] give no numbers .* leave them out of the ensemble, whose predictions are NaN"
    with pytest.warns(UserWarning, match=member):
        assert gilib.predict(gilib.Ensemble(net), likelihood, x, 5).mean.isnan().all()


NEW = normals(5, 2, seed=2)
NOISE = gilib.Gaussian(0.2).to(D)


def structured():
    own = {"family": gilib.structured.StripesAndArrow(), "inducing_points": X[:5], "dtype": D}
    return shaken(gilib.models.structured_gp(2, 1, 2, width=2, **own), 0.2)


def processes(depth, posterior=gilib.GlobalInducing(), **settings):  # noqa: B008
    shared = {"inducing_points": X[:5], "generator": seeded(), "dtype": D, "num_features": 1000} | settings
    return shaken(gilib.models.deep_gp(2, 2, depth, posterior=posterior, **shared), 0.2)


NETS = {
    "factorised": lambda: small_net(gilib.Factorised()),
    "global inducing": lambda: small_net(gilib.GlobalInducing()),
    "replicas": lambda: small_net(gilib.Factorised(), replicas=(2,)),
    "deep GP": lambda: processes(2),
    "deep GP, free": lambda: processes(2, gilib.FreeGaussian()),
    "stripes and arrow": structured,
}


@pytest.mark.parametrize("name", NETS)
def test_marginals_are_those_of_functions(name):
    """Means, and second moments, of both within six standard errors of their difference."""
    net, samples = NETS[name](), 500
    settings = {"batch_size": 2 if name == "replicas" else None, "pointwise": True}
    found = gilib.predict(net, NOISE, NEW, samples, generator=seeded(1), **settings)
    drawn = gilib.predict(net, NOISE, NEW, samples, generator=seeded(2))
    for power in (1, 2):
        # the sparse features of a function's prior part have an error of their own, small at five hundred
        parts = [
            p.means**power + (p.component_sd.square().expand_as(p.means) if power == 2 else 0.0)
            for p in (found, drawn)
        ]
        error = sum(part.var(0) / samples for part in parts).sqrt()
        gap = (parts[0].mean(0) - parts[1].mean(0)).abs()
        assert bool((gap < 6.0 * error + 0.01 * parts[1].mean(0).abs()).all()), (name, power)


def test_one_process_is_exact_at_any_number_of_draws():
    net = processes(1, gilib.FreeGaussian())
    few = gilib.predict(net, NOISE, NEW, 1, pointwise=True, generator=seeded(3))
    many = gilib.predict(net, NOISE, NEW, 7, generator=seeded(3))
    assert_equal(few.mean, many.mean)
    assert_equal(few.sd, many.sd)


def test_every_point_has_noise_of_its_own():
    """A point that stands there twice is drawn twice."""
    net, twice = small_net(gilib.Factorised()), NEW[[0, 0]]
    alone = gilib.predict(net, NOISE, twice, 50, pointwise=True, generator=seeded(4))
    together = gilib.predict(net, NOISE, twice, 50, generator=seeded(4))
    assert torch.equal(together.means[:, 0], together.means[:, 1])
    assert not torch.isclose(alone.means[:, 0], alone.means[:, 1]).any()


def test_ensembles_are_refused():
    net = small_net(gilib.Factorised(), replicas=(2,))
    with pytest.raises(TypeError, match="pointwise=True is for a network, Ensemble draws functions"):
        gilib.predict(gilib.Ensemble(net), NOISE, NEW, pointwise=True)
