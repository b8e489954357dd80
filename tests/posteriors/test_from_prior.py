"""Weights drawn from their prior."""

import pytest
import torch

from gilib.posteriors import BuildContext, FromPrior
from gilib.sites import DenseWeights
from tests.support.oracles import assert_mean_within, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture
def module():
    return FromPrior().build(DenseWeights(6, 3, True), BuildContext(dtype=torch.float64))


def test_moments(module, make_prior, generator):
    prior = make_prior(generator, 6)
    weights, _ = draw_weights(module, None, prior, normal(generator, 20_000, 6, 3))
    assert_mean_within(weights, 0.0)
    columns = weights.mT  # [S, O, I]
    covariance = torch.linalg.inv(prior.dense()).expand(3, 6, 6)
    assert_mean_within(columns[..., :, None] * columns[..., None, :], covariance)
    assert_mean_within(columns[:, 0, :, None] * columns[:, 1, None, :], 0.0)  # columns are independent


def test_the_log_ratio_is_exactly_zero_and_nothing_is_learned(module, make_prior, generator):
    noise = normal(generator, 4, 2, 6, 3)
    weights, log_pq = draw_weights(module, None, make_prior(generator, 6, (4, 2)), noise)
    assert weights.shape == (4, 2, 6, 3) and torch.equal(log_pq, torch.zeros(4, 2))
    assert list(module.parameters()) == [] and not module.needs_inducing
