"""Noise that varies: what it predicts, and that a network learns it."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Normal

import gilib
from gilib.likelihoods import HeteroscedasticGaussian
from tests.support import D, assert_equal, normals, seeded

F = normals(4, 6, 4, seed=1)

NODES, WEIGHTS = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(60))
LIKELIHOOD = HeteroscedasticGaussian([0.3, 2.0])


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


def test_a_network_learns_it():
    """Noise ten times as large on the right: outputs of an ordinary network say so."""
    x = torch.linspace(-1, 1, 200, dtype=D)[:, None]
    y = x + torch.where(x > 0, 0.3, 0.03) * normals(200, 1)
    given = {"posterior": gilib.Factorised(), "prior": gilib.NealPrior(), "generator": seeded(), "dtype": D}
    net, likelihood = gilib.models.mlp(1, (10,), 2, **given), HeteroscedasticGaussian([0.05])
    gilib.fit(net, likelihood, x, y, steps=300, rule=gilib.Adam(0.05), progress=False)
    noise = likelihood.target_moments(net.draw(50, generator=seeded())(x)).variance.mean(0).sqrt()
    assert noise[x > 0.3].mean() / noise[x < -0.3].mean() > 4
