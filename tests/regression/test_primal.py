"""The engine through the precision: shapes, dtypes and failures; `test_dual` compares both routes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg import FactorisationError, KroneckerIdentity, ScaledIdentity
from gilib.regression import WeightPosterior, regress
from gilib.regression.primal import merge_outputs, sample_from_precision, split_outputs
from gilib.statistics import per_output_statistics, shared_statistics
from tests.support import seeded
from tests.support.oracles import Operations, columns_log_prob, normal, positive, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
EXACT = {"rtol": 1e-12, "atol": 1e-12}
POINTS, FAN_IN, OUTPUTS = 5, 6, 4


def scaled(generator):
    return ScaledIdentity(1.7 * positive(generator), FAN_IN)


def test_a_prior_with_samples_on_statistics_without(generator):
    """A drawn prior scale makes the precision differ by sample although the statistics do not."""
    scale, noise = positive(generator, 3), normal(generator, 3, FAN_IN, OUTPUTS)
    features, targets = normal(generator, POINTS, FAN_IN), normal(generator, POINTS, OUTPUTS)
    statistics = shared_statistics(features, targets, positive(generator, POINTS))
    weights, log_pq = regress(statistics, ScaledIdentity(scale, FAN_IN)).draw(noise)
    for s in range(3):
        expected, expected_pq = regress(statistics, ScaledIdentity(scale[s], FAN_IN)).draw(noise[s])
        torch.testing.assert_close(weights[s], expected, **EXACT)
        torch.testing.assert_close(log_pq[s], expected_pq, **EXACT)


SHAPES = st.tuples(*(st.integers(1, 5),) * 3)


@given(SHAPES, st.sampled_from([(), (3,), (3, 2)]), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_draw_for_all_shapes(sizes, lead, seed):
    points, fan_in, outputs = sizes
    generator = seeded(seed)
    features, targets = normal(generator, *lead, points, fan_in), normal(generator, *lead, points, outputs)
    precision = positive(generator, *lead, outputs, points)
    prior = ScaledIdentity(positive(generator, *lead), fan_in)
    posterior = regress(per_output_statistics(features, targets, precision), prior)
    weights, log_pq = posterior.draw(normal(generator, *lead, fan_in, outputs))
    noise = torch.diag_embed(1 / precision)
    evidence = (features @ features.mT / prior.scale[..., None, None])[..., None, :, :] + noise
    expected = columns_log_prob(targets, torch.zeros_like(targets), evidence)
    expected = expected - columns_log_prob(targets, features @ weights, noise)
    torch.testing.assert_close(log_pq, expected, rtol=0, atol=1e-9)


@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_outputs_are_split_group_by_group(lead, groups, columns, fan_in):
    weights = normal(seeded(0), *lead, fan_in, groups * columns)
    blocks = split_outputs(weights, columns)
    assert blocks.shape == (*lead, groups, fan_in, columns)
    for g in range(groups):
        for c in range(columns):
            assert torch.equal(blocks[..., g, :, c], weights[..., g * columns + c])
    assert torch.equal(merge_outputs(blocks), weights)
    assert torch.equal(split_outputs(merge_outputs(blocks), columns), blocks)


def test_float32_equals_float64(generator):
    features, targets = normal(generator, 30, FAN_IN), normal(generator, 30, OUTPUTS)
    statistics = per_output_statistics(features, targets, positive(generator, OUTPUTS, 30))
    noise = normal(generator, 5, FAN_IN, OUTPUTS)
    prior = KroneckerIdentity(1.7 * positive_definite(generator, 3, 3), FAN_IN // 3)
    weights, log_pq = regress(statistics, prior).draw(noise)
    single = type(statistics)(*(part.float() for part in statistics))
    weights32, log_pq32 = regress(single, prior.to(torch.float32)).draw(noise.float())
    assert weights32.dtype == log_pq32.dtype == torch.float32
    torch.testing.assert_close(weights32.double(), weights, rtol=1e-5, atol=1e-5 * float(weights.abs().max()))
    torch.testing.assert_close(log_pq32.double(), log_pq, rtol=1e-5, atol=1e-5 * float(log_pq.abs().max()))


def test_a_failure_names_the_posterior_precision(generator):
    bad = WeightPosterior(-torch.eye(FAN_IN)[None], torch.zeros(1, FAN_IN, OUTPUTS), scaled(generator))
    for attempt in (
        lambda: bad.draw(torch.zeros(FAN_IN, OUTPUTS)),
        lambda: bad.mean,
        lambda: bad.covariance,
        lambda: bad.log_prob(torch.zeros(FAN_IN, OUTPUTS)),
    ):
        with pytest.raises(FactorisationError, match="the posterior precision is not positive definite"):
            attempt()


def test_a_factor_without_sample_axis_is_computed_once(generator):
    precision, shift = positive_definite(generator, 2, 1, 4, 4), normal(generator, 2, 1, 4, 3)
    with Operations() as operations:
        sample_from_precision(precision, shift, normal(generator, 50, 2, 1, 4, 3))
    assert operations.factorised == [(2, 4, 4)]
