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


@pytest.mark.parametrize("lead", [(), (4,), (4, 2)])
def test_the_log_ratio_is_exactly_zero(module, make_prior, lead, generator):
    weights, log_pq = draw_weights(
        module, None, make_prior(generator, 6, lead), normal(generator, *lead, 6, 3)
    )
    assert weights.shape == (*lead, 6, 3)
    assert torch.equal(log_pq, torch.zeros(lead))


def test_there_is_nothing_to_learn(module):
    assert list(module.parameters()) == []
    assert not module.needs_inducing
