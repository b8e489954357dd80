"""The joint Gaussian: where it starts, and its last layer against dense matrices."""

import pytest
import torch

import gilib
from gilib.structured import FullyCoupled, JointGaussian, MeanField, Pattern, StripesAndArrow
from tests.structured.test_pattern import Chain
from tests.support import D, assert_equal, normals, shaken

FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled(), "own": Chain()}
WIDTHS, SIZES = (2, 2, 1), (4, 3, 2)
each = pytest.mark.parametrize("family", FAMILIES)


def joint(family, replicas=()):
    pattern = Pattern(FAMILIES[family], WIDTHS, SIZES)
    module = JointGaussian(pattern, gilib.posteriors.BuildContext(replicas=replicas, dtype=D))
    return shaken(module, 0.5)


def dense(module):
    """Mean `[R, n]` and factor `[R, n, n]`, process after process."""
    pattern = module.pattern
    owner = [p for p in range(len(pattern.places)) for _ in range(pattern.points[p])]
    first = [owner.index(p) for p in range(len(pattern.places))]
    lead = module.rows[0].shape[:-2]
    factor = torch.zeros(*lead, len(owner), len(owner), dtype=D)
    for p, row in enumerate(module.rows):
        for column in pattern.factor[p]:
            size, start = pattern.points[column], pattern.starts[p][column]
            rows = slice(first[p], first[p] + pattern.points[p])
            factor[..., rows, first[column] : first[column] + size] = row[..., start : start + size]
    columns = [module.means[place.layer][..., place.index] for place in pattern.places]
    return torch.cat(columns, -1).detach(), factor.tril().detach()


def test_it_starts_at_a_small_multiple_of_the_prior():
    module = JointGaussian(Pattern(FullyCoupled(), WIDTHS, SIZES), gilib.posteriors.BuildContext(dtype=D))
    mean, factor = dense(module)
    scales = torch.tensor([0.1] * 14 + [1.0] * 2, dtype=D)
    assert_equal(mean, torch.zeros(16, dtype=D))
    assert_equal(factor, scales.diag())
    one = JointGaussian(Pattern(FullyCoupled(0.3), WIDTHS, SIZES), gilib.posteriors.BuildContext(dtype=D))
    assert_equal(dense(one)[1], 0.3 * torch.eye(16, dtype=D))


@pytest.mark.parametrize("family", ["star", "own"])
def test_no_natural_gradient_for_a_sparse_covariance(family):
    with pytest.raises(ValueError, match="natural gradients need every block of a covariance"):
        _ = joint(family).gaussian_parameters


@pytest.mark.parametrize("widths", [(2, 1), (2, 2)])
@each
def test_the_last_layer_given_those_below(family, widths):
    """By conditioning the dense Gaussian on what was drawn below; outputs that depend remain drawn."""
    module = shaken(
        JointGaussian(Pattern(FAMILIES[family], widths, (3, 2)), gilib.posteriors.BuildContext(dtype=D)), 0.5
    )
    mean, factor = dense(module)
    noise = normals(3, len(mean), seed=4)
    drawn, _ = module.draw(noise)
    distribution = module.last(drawn[-1], noise)
    if widths[-1] == 2 and family in ("star", "fc"):
        assert distribution.covariance is None and torch.equal(distribution.mean, drawn[-1])
        return
    covariance, below = factor @ factor.mT, 6
    gain = torch.linalg.solve(covariance[:below, :below], covariance[:below, below:]).mT
    values = torch.cat([w.mT.flatten(1) for w in drawn], -1)
    expected = mean[below:] + (values[:, :below] - mean[:below]) @ gain.mT
    spread = covariance[below:, below:] - gain @ covariance[:below, below:]
    assert_equal(distribution.mean.mT.flatten(1), expected, 1e-9)
    assert_equal(torch.block_diag(*distribution.covariance), spread, 1e-9)
