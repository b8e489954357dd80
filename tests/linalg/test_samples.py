"""Samples of a batch one by one: which, of what, and that they are views."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.linalg.samples import product, samples
from tests.helpers import normal, seeded

pytestmark = pytest.mark.usefixtures("float64")


@given(
    st.sampled_from([((), ()), ((3,), ()), ((), (2,)), ((3, 2), (2,)), ((3, 1), (1, 2))]),
    st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_products_of_any_shape(leads, sizes, seed):
    left = normal(seeded(seed), *leads[0], *sizes[:2])
    right = normal(seeded(seed + 1), *leads[1], *sizes[1:])
    torch.testing.assert_close(product(left, right), left @ right, rtol=1e-13, atol=1e-13)


def test_every_sample_once_and_what_they_share_each_time():
    own, shared = torch.arange(12.0).reshape(2, 3, 2), torch.arange(3.0)[:, None]
    found = [(a.tolist(), b.tolist(), c) for a, b, c in samples((2, 3), own, shared, None, axes=1)]
    assert found == [
        ([4.0 * i + 2 * i + 2 * j - 0.0, 4.0 * i + 2 * i + 2 * j + 1], [float(j)], None)
        for i in range(2)
        for j in range(3)
    ]


def test_no_leading_axes_are_one_sample():
    (pair,) = samples((), torch.eye(2), torch.ones(3, 1))
    assert torch.equal(pair[0], torch.eye(2)) and torch.equal(pair[1], torch.ones(3, 1))


def test_what_is_added_to_a_view_is_added_to_the_tensor():
    total, each = torch.zeros(3, 1), torch.zeros(2, 3, 1)
    for a, b in samples((2, 3), total, each, axes=1):
        a.add_(1.0)
        b.add_(1.0)
    assert total.flatten().tolist() == [2.0, 2.0, 2.0] and torch.equal(each, torch.ones(2, 3, 1))
