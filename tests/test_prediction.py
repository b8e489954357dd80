"""Predictive mixtures against scipy, in the units of the data."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import torch

import gilib
from gilib.data import Normalisation
from tests.support import D, assert_equal, normals, seeded, small_net

N, OUTPUTS = 3, 2
MEANS = 2 * normals(4, N, OUTPUTS, seed=1)
NOISE = torch.tensor([0.3, 0.8], dtype=D).expand(1, N, OUTPUTS)
MIXTURE = gilib.GaussianPrediction(MEANS, NOISE)
NORMALISATION = Normalisation(
    torch.tensor([3.0, -1.0], dtype=D),
    torch.tensor([2.0, 0.5], dtype=D),
    torch.tensor([10.0, -4.0], dtype=D),
    torch.tensor([5.0, 0.1], dtype=D),
)


def component(n, o):
    """The mixture at one point and output as scipy's normals."""
    return scipy.stats.norm(MEANS[:, n, o].numpy(), float(NOISE[0, n, o]))


@pytest.mark.parametrize(("n", "o"), [(0, 0), (2, 1)])
def test_mean_and_sd_by_numerical_integration(n, o):
    def moment(power, centre=0.0):
        density = component(n, o)
        bounds = float(MEANS.min()) - 10, float(MEANS.max()) + 10
        integrand = lambda y: (y - centre) ** power * density.pdf(y).mean()  # noqa: E731
        return scipy.integrate.quad(integrand, *bounds, epsabs=1e-12, limit=200)[0]

    mean = moment(1)
    assert float(MIXTURE.mean[n, o]) == pytest.approx(mean, abs=1e-8)
    assert float(MIXTURE.sd[n, o]) == pytest.approx(math.sqrt(moment(2, mean)), abs=1e-8)
    assert float(MIXTURE.function_sd[n, o]) == pytest.approx(float(np.std(MEANS[:, n, o].numpy())), abs=1e-12)


@pytest.mark.parametrize("probability", [1e-6, 0.025, 0.5, 0.9, 1 - 1e-6])
def test_quantiles_by_root_finding(probability):
    actual = MIXTURE.quantile(probability)
    assert actual.shape == (N, OUTPUTS)
    for n in range(N):
        for o in range(OUTPUTS):
            cdf = component(n, o).cdf
            root = scipy.optimize.brentq(lambda y, cdf=cdf: cdf(y).mean() - probability, -50, 50, xtol=1e-13)
            assert float(actual[n, o]) == pytest.approx(root, abs=1e-8)


def test_one_component_has_the_quantiles_of_its_normal():
    single = gilib.GaussianPrediction(MEANS[:1], NOISE)
    assert_equal(single.quantile(0.5), MEANS[0], 1e-9)
    assert_equal(single.quantile(0.975), MEANS[0] + scipy.stats.norm.ppf(0.975) * NOISE[0], 1e-8)


def test_log_prob_by_brute_force():
    y = normals(N, OUTPUTS, seed=2)
    densities = (
        scipy.stats.norm(MEANS.numpy(), NOISE.numpy()).pdf(y.numpy()).prod(-1)
    )  # [S, N], joint over outputs
    assert_equal(MIXTURE.log_prob(y), np.log(densities.mean(0)), 1e-10)


def test_log_prob_is_a_density():
    one = gilib.GaussianPrediction(MEANS[:, :1, :1], NOISE[:, :1, :1])
    grid = torch.linspace(-15, 15, 20001, dtype=D)
    density = torch.stack([one.log_prob(y.view(1, 1)).exp()[0] for y in grid[::20]])
    assert float(torch.trapezoid(density, grid[::20])) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("batch_size", [None, 1, 2, 4, 100])
def test_predict_draws_once_and_evaluates_in_batches(batch_size):
    net, likelihood, x = small_net(gilib.GlobalInducing()), gilib.Gaussian(0.3), normals(7, 2)
    prediction = gilib.predict(net, likelihood, x, 5, batch_size=batch_size, generator=seeded(3))
    outputs = net.draw(5, generator=seeded(3))(x).detach()
    assert_equal(prediction.means, outputs)
    assert_equal(prediction.mean, outputs.mean(0))
    assert_equal(prediction.sd, (outputs.var(0, correction=0) + 0.3).sqrt())
    expected = gilib.metrics.log_mean_exp(likelihood.log_prob(outputs, normals(7, 2, seed=1)))
    assert_equal(prediction.log_prob(normals(7, 2, seed=1)), expected)


def test_predictions_in_original_units():
    net, likelihood, x, y = (
        small_net(gilib.GlobalInducing()),
        gilib.Gaussian(0.3),
        normals(7, 2),
        normals(7, 2, seed=1),
    )
    scaled = gilib.predict(net, likelihood, x, 5, generator=seeded(3))
    original_x, original_y = NORMALISATION.invert_x(x), NORMALISATION.invert_y(y)
    original = gilib.predict(net, likelihood, original_x, 5, normalisation=NORMALISATION, generator=seeded(3))
    centre, factor = torch.tensor([10.0, -4.0], dtype=D), torch.tensor([5.0, 0.1], dtype=D)
    assert_equal(original.mean, centre + factor * scaled.mean, 1e-10)
    assert_equal(original.sd, factor * scaled.sd, 1e-10)
    assert_equal(original.quantile(0.1), centre + factor * scaled.quantile(0.1), 1e-9)
    shifted = scaled.log_prob(y) - math.log(5.0) - math.log(0.1)
    assert_equal(original.log_prob(original_y), shifted, 1e-9)


def test_inputs_in_original_units_take_the_networks_dtype():
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.Factorised(), dtype=torch.float32)
    prediction = gilib.predict(net, gilib.Gaussian(0.3), normals(7, 2), 3, normalisation=NORMALISATION)
    assert prediction.mean.dtype == torch.float32 and prediction.sd.dtype == torch.float32


def test_replicas():
    net, likelihood = small_net(gilib.GlobalInducing(), replicas=(2,)), gilib.Gaussian(0.3, replicas=(2,))
    with torch.no_grad():
        likelihood.scaled_log_variance[1] = 0.0
    prediction = gilib.predict(net, likelihood, normals(7, 2), 5, generator=seeded())
    assert prediction.mean.shape == prediction.sd.shape == prediction.quantile(0.3).shape == (2, 7, 2)
    assert prediction.log_prob(normals(7, 2)).shape == (2, 7)
    noise = prediction.sd.square() - prediction.function_sd.square()
    assert_equal(noise, torch.tensor([0.3, 1.0], dtype=D)[:, None, None].expand(2, 7, 2), 1e-10)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_classes(batch_size):
    net, labels = small_net(gilib.GlobalInducing()), torch.arange(7) % 2
    prediction = gilib.predict(
        net, gilib.Categorical(), normals(7, 2), 5, batch_size=batch_size, generator=seeded()
    )
    averaged = net.draw(5, generator=seeded())(normals(7, 2)).detach().softmax(-1).mean(0)
    assert_equal(prediction.mean, averaged)
    assert_equal(prediction.mean.sum(-1), torch.ones(7))
    assert_equal(prediction.log_prob(labels), averaged[torch.arange(7), labels].log())


def test_classes_by_replica():
    net = small_net(gilib.GlobalInducing(), replicas=(2,))
    prediction = gilib.predict(net, gilib.Categorical(), normals(7, 2), 5, generator=seeded())
    assert prediction.mean.shape == (2, 7, 2) and prediction.log_prob(
        torch.zeros(7, dtype=torch.long)
    ).shape == (2, 7)


def test_predicting_keeps_no_graph_and_no_global_noise():
    net, likelihood, state = (
        small_net(gilib.GlobalInducing()),
        gilib.Gaussian(0.3, learn=True),
        torch.get_rng_state(),
    )
    prediction = gilib.predict(net, likelihood, normals(7, 2), generator=seeded())
    assert prediction.means.shape[0] == 100 and not prediction.sd.requires_grad
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_impossible_quantiles(probability):
    with pytest.raises(ValueError, match="a quantile needs a probability between 0 and 1"):
        MIXTURE.quantile(probability)


@pytest.mark.parametrize("targets", [normals(N), normals(N, 1), normals(N + 1, OUTPUTS), normals(1, OUTPUTS)])
def test_targets_of_the_wrong_count(targets):
    with pytest.raises(ValueError, match=r"targets must have shape \[3, 2\]"):
        MIXTURE.log_prob(targets)


def test_labels_of_the_wrong_count():
    prediction = gilib.CategoricalPrediction(MEANS.log_softmax(-1))
    for labels in (torch.zeros(4, dtype=torch.long), torch.zeros(3, 1, dtype=torch.long)):
        with pytest.raises(ValueError, match=r"class labels must have shape \[3\]"):
            prediction.log_prob(labels)
