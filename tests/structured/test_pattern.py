"""Patterns against dense matrices of zeros and ones; where the joint Gaussian starts, and its last layer."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.posteriors import BuildContext
from gilib.structured import (
    Family,
    FullyCoupled,
    JointGaussian,
    MeanField,
    Pattern,
    ProcessIndex,
    StripesAndArrow,
)
from tests.structured.reading import dense_root, layer_of, network
from tests.support import D, assert_equal, normals


@dataclass(frozen=True)
class Chain(Family):
    """A family of the reader's own: each process and the one before it."""

    def couples(self, row, column, depth):
        return row.layer == column.layer + 1


class Forgetful(Chain):
    def couples(self, row, column, depth):
        super().couples(row, column, depth)


FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled(), "own": Chain()}
FAMILY = st.sampled_from(list(FAMILIES.values()))
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))  # a width and a number of points
shapes = st.lists(pairs, min_size=1, max_size=4).map(lambda layers: tuple(zip(*layers, strict=True)))
EVERY = settings(max_examples=60, deadline=None, derandomize=True)


def dense(pattern):
    """The factor's pattern as a matrix over inducing outputs."""
    owner = [p for p in range(len(pattern.places)) for _ in range(pattern.points[p])]
    return torch.tensor([[float(c in pattern.factor[r]) for c in owner] for r in owner]), owner


@given(FAMILY, shapes)
@EVERY
def test_the_covariance_has_the_blocks_of_the_product(family, shape):
    pattern = Pattern(family, *shape)
    factor, owner = dense(pattern)
    product = factor @ factor.mT
    found = {(r, c) for i, r in enumerate(owner) for j, c in enumerate(owner) if c <= r and product[i, j] > 0}
    assert set(pattern.covariance) == found and pattern.size == len(owner)


@given(FAMILY, shapes)
@EVERY
def test_runs_are_the_shared_columns(family, shape):
    pattern = Pattern(family, *shape)
    stored = [[(k, i) for k in row for i in range(pattern.points[k])] for row in pattern.factor]
    for r, c in pattern.covariance:
        pairs = [
            (stored[r][at + i], stored[c][other + i])
            for at, other, length in pattern.runs(r, c)
            for i in range(length)
        ]
        assert all(one == two for one, two in pairs)
        assert [one for one, _ in pairs] == [entry for entry in stored[c] if entry in stored[r]]


@given(FAMILY, shapes)
@EVERY
def test_components_are_what_a_walk_reaches(family, shape):
    pattern = Pattern(family, *shape)
    reach = torch.zeros(len(pattern.places), len(pattern.places))
    for r, c in pattern.covariance:
        reach[r, c] = reach[c, r] = 1.0
    reach = torch.linalg.matrix_power(reach, len(reach)) > 0
    assert {tuple(row.nonzero()[:, 0].tolist()) for row in reach} == set(pattern.components)


def test_patterns_are_those_of_the_paper():
    """Three layers of 2, 2 and 1: diagonal, the stripe between the hidden layers, and the last row."""
    assert Pattern(MeanField(), (2, 1), (3, 3)).factor == ((0,), (1,), (2,))
    assert Pattern(FullyCoupled(), (2, 1), (3, 3)).factor == ((0,), (0, 1), (0, 1, 2))
    assert Pattern(StripesAndArrow(), (1, 1, 1, 1), (2, 2, 2, 2)).factor[2] == (0, 1, 2)
    pattern = Pattern(StripesAndArrow(), (2, 2, 1), (3, 3, 3))
    assert pattern.factor == ((0,), (1,), (0, 2), (1, 3), (0, 1, 2, 3, 4))
    assert set(pattern.covariance) == {(r, c) for r, row in enumerate(pattern.factor) for c in row}
    assert pattern.places[3] == ProcessIndex(1, 1)


@pytest.mark.parametrize("widths", [(2, 3, 1), (2, 2, 2), (2, 2, 1, 1)])
def test_stripes_need_one_width_and_one_output(widths):
    with pytest.raises(ValueError, match="StripesAndArrow is for hidden layers of one width and"):
        StripesAndArrow().check(widths)
    FullyCoupled().check(widths)
    MeanField().check(widths)


def test_a_family_answers_yes_or_no():
    with pytest.raises(TypeError, match=r"Forgetful.couples must return True or False, got None"):
        Pattern(Forgetful(), (2, 1), (3, 3))


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
