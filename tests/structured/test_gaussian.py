"""The joint Gaussian: where it starts, and its last layer against dense matrices."""

import pytest
import torch

from gilib.posteriors import BuildContext
from gilib.structured import FullyCoupled, JointGaussian, MeanField, Pattern, StripesAndArrow
from tests.structured.reading import dense_root, layer_of, network
from tests.structured.test_pattern import Chain
from tests.support import D, assert_equal, normals

FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled(), "own": Chain()}


def joint(family):
    return JointGaussian(Pattern(family, (2, 2, 1), (4, 3, 2)), BuildContext(dtype=D))


@pytest.mark.parametrize(
    ("family", "scales"), [(FullyCoupled(), [0.1] * 4 + [1.0]), (FullyCoupled(0.3), [0.3] * 5)]
)
def test_it_starts_at_a_small_multiple_of_the_prior(family, scales):
    module = joint(family)
    assert not any(mean.any() for mean in module.means)
    for row, scale in zip(module.rows, scales, strict=True):
        size = len(row)
        assert not row[:, :-size].any() and torch.equal(row[:, -size:], scale * torch.eye(size, dtype=D))


@pytest.mark.parametrize("family", ["star", "own"])
def test_no_natural_gradient_for_a_sparse_covariance(family):
    with pytest.raises(ValueError, match="natural gradients need every block of a covariance"):
        _ = joint(FAMILIES[family]).gaussian_parameters


@pytest.mark.parametrize(
    ("family", "widths"), [*((family, (2, 1)) for family in FAMILIES), ("mf", (2, 2)), ("fc", (2, 2))]
)
@torch.no_grad()
def test_the_last_layer_given_those_below(family, widths):
    """By conditioning the dense Gaussian on what was drawn below; outputs that depend remain drawn."""
    net = network(FAMILIES[family], (widths, (3, 2)))
    module, factor = layer_of(net).weights, dense_root(net)
    mean = torch.cat([value.mT.flatten() for value in module.means])
    noise = normals(3, len(mean), seed=4)
    drawn, _ = module.draw(noise)
    distribution = module.last(drawn[-1], noise)
    if widths[-1] == 2 and family == "fc":
        assert distribution.covariance is None and torch.equal(distribution.mean, drawn[-1])
        return
    covariance, below = factor @ factor.mT, 6
    gain = torch.linalg.solve(covariance[:below, :below], covariance[:below, below:]).mT
    values = torch.cat([w.mT.flatten(1) for w in drawn], -1)
    expected = mean[below:] + (values[:, :below] - mean[:below]) @ gain.mT
    spread = covariance[below:, below:] - gain @ covariance[:below, below:]
    assert_equal(distribution.mean.mT.flatten(1), expected, 1e-9)
    assert_equal(torch.block_diag(*distribution.covariance), spread, 1e-9)
