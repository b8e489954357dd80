"""Student t predictions of the last conjugate layer, against scipy and against sampled pairs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from torch import nn

import gilib
from gilib.likelihoods.quantiles import StandardStudent
from gilib.prediction import StudentPrediction, predict_student
from tests.support import D, assert_equal, normals, seeded
from tests.support.layerwise import X, Y, fit, model, noise, regressions
from tests.support.oracles import assert_mean_within

S, N = 3, 4
PREDICTION = StudentPrediction(
    2 * normals(S, N, 2, seed=1),
    1.0 + normals(S, N, 1, seed=2).square(),
    torch.tensor([[[0.5, 0.0], [0.4, 1.2]]], dtype=D),
    torch.tensor([6.5], dtype=D),
)
SHAPE = (PREDICTION.scale_tril @ PREDICTION.scale_tril.mT)[0].numpy()


def component(n, o):
    scale = (PREDICTION.spreads[:, n, 0] * math.sqrt(SHAPE[o, o])).numpy()
    return scipy.stats.t(6.5, PREDICTION.locations[:, n, o].numpy(), scale)


def test_densities_moments_and_quantiles():
    targets, probabilities = normals(N, 2, seed=3), (1e-9, 0.025, 1 - 1e-6)
    density, below = PREDICTION.log_prob(targets).exp(), PREDICTION.cdf(targets)
    quantiles = [PREDICTION.quantile(probability) for probability in probabilities]
    for n in range(N):
        parts = [
            scipy.stats.multivariate_t(location, float(spread) ** 2 * SHAPE, 6.5).pdf(targets[n])
            for location, spread in zip(PREDICTION.locations[:, n], PREDICTION.spreads[:, n, 0], strict=True)
        ]
        assert float(density[n]) == pytest.approx(np.mean(parts), rel=1e-10)
        for o in range(2):
            own = component(n, o)
            assert float(PREDICTION.mean[n, o]) == pytest.approx(own.mean().mean(), abs=1e-12)
            second = (own.var() + own.mean() ** 2).mean()
            assert float(PREDICTION.sd[n, o]) == pytest.approx(math.sqrt(second - own.mean().mean() ** 2))
            assert float(below[n, o]) == pytest.approx(own.cdf(float(targets[n, o])).mean(), abs=1e-12)
            for probability, found in zip(probabilities, quantiles, strict=True):

                def excess(y, own=own, p=probability):  # for large ones from above, where it has the digits
                    return (1.0 - p) - own.sf(y).mean() if p > 0.5 else own.cdf(y).mean() - p

                root = scipy.optimize.brentq(excess, -1e4, 1e4, xtol=1e-13, rtol=1e-13)
                assert float(found[n, o]) == pytest.approx(root, rel=1e-9)


@pytest.mark.parametrize("df", [1.0, 1e5])
def test_quantiles_of_one_component(df):
    """And of replicas with degrees of freedom of their own, the last of which broke down."""
    one = torch.ones(1, 3, 2, 1, dtype=D)
    places = torch.tensor([1.0, 1.0, torch.nan], dtype=D)[:, None, None] * one
    dfs = torch.tensor([[df, 4.0, 4.0]], dtype=D)
    found = StudentPrediction(places, 2.0 * one, one[:, :, :1], dfs).quantile(0.01)
    for replica, own in enumerate((df, 4.0)):
        wanted = 1.0 + 2.0 * scipy.stats.t.ppf(0.01, own)
        assert_equal(found[replica] / wanted, torch.ones(2, 1, dtype=D), 1e-11)
    assert bool(found[2].isnan().all())


@pytest.mark.parametrize("df", [1.0, 2.5, 101.0, 1e6])
def test_the_standard_distribution(df):
    """Its density, and its distribution function to twelve digits in the lower tail."""
    values, law = torch.tensor([-30.0, -4.0, -0.5, 0.0, 2.0], dtype=D), scipy.stats.t(df)
    standard = StandardStudent(torch.tensor(df, dtype=D))
    for found, expected, away in ((standard.density, law.pdf, 1e-8), (standard.cdf, law.cdf, 1e-12)):
        wanted = torch.from_numpy(expected(values.numpy()))
        assert_equal(found(values) / wanted, torch.ones_like(values), away)


def test_a_deviation_that_there_is_not():
    """Infinite for df of 2 or less, nothing at all for 1 or less; components far apart change nothing."""
    for df, expected in ((2.5, 30.0**0.5), (2.0, math.inf), (1.5, math.inf), (1.0, math.nan)):
        one, places = torch.ones(2, 1, 1, dtype=D), torch.tensor([[[0.0]], [[10.0]]], dtype=D)
        found = StudentPrediction(places, one, one[:1], torch.tensor([df], dtype=D)).sd
        assert float(found) == pytest.approx(expected, nan_ok=True)


@pytest.fixture(scope="module")
def trained():
    net, likelihood = model(), noise()
    fit(net, likelihood, X[:30], Y[:30], steps=40)
    return net


def below(net, x, samples):
    """The last regression, and its features from draws of the layers below."""
    last, function = regressions(net)[-1], net.draw(samples, generator=seeded()).function
    step = gilib.record(function, x).steps[-1]
    return last, list(net.layers)[-1].features(step.input) / last.root_fan_in


def test_weights_and_noise_are_integrated_out(trained):
    """E exp(log N(y; x̃ᵀW, Σ)) over pairs (W, Σ), given the layers below, within six standard errors."""
    (last, features), y = below(trained, X[30:33], 1), Y[30:33]
    found = predict_student(trained, X[30:33], 1, generator=seeded())
    weights, covariance = last.posterior.rsample((10_000,), generator=seeded(1))
    dist = torch.distributions.MultivariateNormal(features[0] @ weights, covariance[:, None])
    assert_mean_within(dist.log_prob(y).exp(), found.log_prob(y).exp())
    (last, features), x = below(trained, X[30:35], 2), X[30:35]
    found = predict_student(trained, x, 2, batch_size=2, generator=seeded())
    dist = last.posterior.predictive(features)
    assert_equal(found.locations, dist.loc, 1e-12)
    assert_equal(found.component_scale, dist.scale, 1e-12)
    assert float(found.df) == float(dist.df.flatten()[0])


def test_units_of_the_data_and_replicas():
    """Outputs of different units with correlated noise: the density changes by the units alone."""
    one = torch.ones(2, dtype=D)
    scales = gilib.data.Normalisation(normals(2), one, normals(2), torch.tensor([3.0, 0.2], dtype=D))
    net = model(replicas=(2,))
    fit(net, noise((2,)), seed=[1, 2], steps=3)
    assert bool((regressions(net)[-1].scale_tril[:, 1, 0].abs() > 1e-3).all())
    x, y = X[:6] + scales.x_mean, scales.invert_y(Y[:6])
    found = predict_student(net, x, 2, normalisation=scales, generator=seeded())
    plain = predict_student(net, X[:6], 2, generator=seeded())
    assert found.log_prob(y).shape == (2, 6)
    assert_equal(found.log_prob(y), plain.log_prob(Y[:6]) + scales.log_density_shift, 1e-9)
    assert_equal(found.quantile(0.9), scales.invert_y(plain.quantile(0.9)), 1e-6)


def test_single_precision_at_many_degrees_of_freedom():
    """Differences of log Γ at 1e5 in float32 would be wrong by 0.1."""
    exact = replace(PREDICTION, df=torch.tensor([1e5], dtype=D))
    parts = (part.float() for part in (exact.locations, exact.spreads, exact.scale_tril))
    own = StudentPrediction(*parts, exact.df).log_prob(torch.zeros(N, 2))
    assert own.dtype == torch.float32
    assert_equal(own.double(), exact.log_prob(torch.zeros(N, 2, dtype=D)), 1e-5)


def test_what_does_not_fit(trained):
    with pytest.raises(ValueError, match=r"needs gilib\.posteriors\.Conjugate at the last layer"):
        predict_student(model(posterior=gilib.FromPrior()), X)
    squared = gilib.Network(None, [gilib.Linear(2, 2, gilib.posteriors.Conjugate()), nn.Tanh()], dtype=D)
    with pytest.raises(ValueError, match="the last layer with weights must give the outputs of the network"):
        predict_student(squared, X)
    with pytest.raises(ValueError, match=r"targets must have shape \[4, 2\]"):
        PREDICTION.log_prob(Y)
    with pytest.raises(ValueError, match="a quantile needs one probability between 0 and 1"):
        PREDICTION.quantile(1.0)
    with pytest.raises(ValueError, match="x must hold points of shape"):
        predict_student(trained, normals(3, 5))
