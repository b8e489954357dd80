"""The joint Gaussian: where it starts, and its last layer against dense matrices."""

import pytest
import torch

from gilib.posteriors import BuildContext
from gilib.structured import FullyCoupled, JointGaussian, MeanField, Pattern, StripesAndArrow
from tests.structured.test_pattern import Chain
from tests.support import D, assert_equal, normals, shaken

FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled(), "own": Chain()}
WIDTHS, SIZES = (2, 2, 1), (4, 3, 2)


def joint(family, widths=WIDTHS, sizes=SIZES):
    return JointGaussian(Pattern(family, widths, sizes), BuildContext(dtype=D))


def dense(module):
    """Mean `[n]` and factor `[n, n]`, process after process."""
    pattern = module.pattern
    owner = [p for p in range(len(pattern.places)) for _ in range(pattern.points[p])]
    first = [owner.index(p) for p in range(len(pattern.places))]
    factor = torch.zeros(len(owner), len(owner), dtype=D)
    for p, row in enumerate(module.rows):
        for column in pattern.factor[p]:
            size, start = pattern.points[column], pattern.starts[p][column]
            rows = slice(first[p], first[p] + pattern.points[p])
            factor[rows, first[column] : first[column] + size] = row[:, start : start + size]
    columns = [module.means[place.layer][:, place.index] for place in pattern.places]
    return torch.cat(columns).detach(), factor.tril().detach()


def test_it_starts_at_a_small_multiple_of_the_prior():
    mean, factor = dense(joint(FullyCoupled()))
    assert_equal(mean, torch.zeros(16, dtype=D))
    assert_equal(factor, torch.tensor([0.1] * 14 + [1.0] * 2, dtype=D).diag())
    assert_equal(dense(joint(FullyCoupled(0.3)))[1], 0.3 * torch.eye(16, dtype=D))


@pytest.mark.parametrize("family", ["star", "own"])
def test_no_natural_gradient_for_a_sparse_covariance(family):
    with pytest.raises(ValueError, match="natural gradients need every block of a covariance"):
        _ = joint(FAMILIES[family]).gaussian_parameters


@pytest.mark.parametrize("widths", [(2, 1), (2, 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_given_those_below(family, widths):
    """By conditioning the dense Gaussian on what was drawn below; outputs that depend remain drawn."""
    module = shaken(joint(FAMILIES[family], widths, (3, 2)), 0.5)
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
