"""Noise that varies: the likelihood by quadrature, and what it predicts."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import gilib
from gilib.likelihoods import HeteroscedasticGaussian, PerOutputGaussian
from tests.support import D, assert_equal, normals, seeded, small_net

F, Y = normals(4, 6, 4, seed=1), normals(6, 2, seed=2)
VARIANCES = [0.3, 2.0]
NODES, WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(60))
LIKELIHOOD = HeteroscedasticGaussian(VARIANCES)


def two_processes():
    """Mean and log variance of one target, with posteriors away from the prior."""
    net = gilib.models.heteroscedastic_gp(
        2, 1, inducing_points=normals(5, 2), noise_inducing_points=normals(3, 2, seed=3), dtype=D
    )
    with torch.no_grad():
        for k, (name, value) in enumerate(net.named_parameters()):
            if "weights" in name:
                value.add_(0.3 * normals(*value.shape, seed=k))
    return net


def test_log_prob_by_torch_distributions():
    sd = (torch.tensor(VARIANCES, dtype=D) * F[..., 2:].exp()).sqrt()
    assert_equal(LIKELIHOOD.log_prob(F, Y), Normal(F[..., :2], sd).log_prob(Y).sum(-1))


def test_without_a_part_of_its_own_the_noise_is_per_output():
    level = torch.cat([F[..., :2], torch.zeros_like(F[..., 2:])], -1)
    constant = PerOutputGaussian(VARIANCES)
    assert_equal(LIKELIHOOD.log_prob(level, Y), constant.log_prob(F[..., :2], Y))
    assert_equal(LIKELIHOOD.predictive(level).sd, constant.predictive(F[..., :2]).sd)


def test_the_expectation_by_quadrature():
    """Over f ~ N(m, v) and g ~ N(μ, τ) on a grid of Gauss and Hermite's nodes."""
    net, x, y = two_processes(), normals(7, 2, seed=4), normals(7, 1, seed=5)
    likelihood = HeteroscedasticGaussian([0.3])
    functions = net.estimate(1, 7)
    mean, variance = functions.moments(x)
    grid = torch.stack(torch.meshgrid(NODES, NODES, indexing="ij"), -1).reshape(-1, 1, 2)
    weights = (WEIGHTS[:, None] * WEIGHTS).reshape(-1, 1) / (2.0 * math.pi)
    expected = (weights * likelihood.log_prob(mean + variance.sqrt() * grid, y)).sum(0)
    assert_equal(likelihood.expected_log_prob(functions, x, y)[0].detach(), expected.detach(), 1e-9)
    draw = small_net(gilib.Factorised(), hidden=()).draw(3)
    one = HeteroscedasticGaussian([1.0])
    assert_equal(one.expected_log_prob(draw, x, y), one.log_prob(draw(x), y))


def test_the_predicted_density_by_quadrature():
    """Twenty components stand for log-normal noise: to a hundredth of a nat where targets lie."""
    mean, variance = torch.zeros(1, 41, 2, dtype=D), torch.full((1, 41, 2), 0.25, dtype=D)
    y = torch.linspace(-2, 2, 41, dtype=D)[:, None]
    likelihood = HeteroscedasticGaussian([0.4])
    found = likelihood.predictive(mean, None, variance)
    sd = (0.25 + 0.4 * (0.5 * NODES).exp()).sqrt()
    density = (WEIGHTS / math.sqrt(2 * math.pi) * Normal(0.0, sd).log_prob(y).exp()).sum(-1)
    assert found.means.shape == (20, 41, 1)
    assert (found.log_prob(y) - density.log()).abs().max() < 0.01
    wide = 0.25 + 0.4 * math.exp(0.125)
    assert_equal(found.sd.square().mean(), torch.tensor(wide, dtype=D), 2e-3)


@pytest.mark.parametrize("variance", [None, F.square()])
def test_predictions_in_original_units(variance):
    normalisation = gilib.data.Normalisation.fit(normals(9, 2), 5.0 * normals(9, 2, seed=4))
    plain, scaled = (LIKELIHOOD.predictive(F, units, variance) for units in (None, normalisation))
    assert_equal(scaled.sd, plain.sd * normalisation.y_std)
    assert_equal(scaled.mean, normalisation.invert_y(plain.mean))


def test_a_network_learns_it_and_is_saved(tmp_path):
    """Noise ten times as large on the right: outputs of an ordinary network say so."""
    x = torch.linspace(-1, 1, 200, dtype=D)[:, None]
    y = x + torch.where(x > 0, 0.3, 0.03) * normals(200, 1)
    net = gilib.models.mlp(
        1, (10,), 2, posterior=gilib.Factorised(), prior=gilib.NealPrior(), generator=seeded(), dtype=D
    )
    likelihood = HeteroscedasticGaussian([0.05])
    gilib.fit(net, likelihood, x, y, steps=300, rule=gilib.Adam(0.05), progress=False)
    noise = likelihood.target_moments(net.draw(50)(x)).variance.mean(0).sqrt()
    assert noise[x > 0.3].mean() / noise[x < -0.3].mean() > 4
    gilib.save(tmp_path / "model", net, likelihood)
    again = gilib.load(tmp_path / "model").likelihood
    assert isinstance(again, HeteroscedasticGaussian)
    assert torch.equal(again.log_variance, likelihood.log_variance)


def test_noise_of_other_replicas_is_refused():
    """As many as there are samples, each sample would get its own."""
    likelihood = HeteroscedasticGaussian([0.1, 0.2], replicas=(len(F),))
    asked = [
        lambda: likelihood.log_prob(F, Y),
        lambda: likelihood.target_moments(F),
        lambda: likelihood.predictive(F, variance=F.square()),
        lambda: likelihood.expected_log_prob(gilib.Draw(lambda x: F, None), F[0], Y),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match=r"has a noise for each of these, .* with replicas=\(\)"):
            ask()
