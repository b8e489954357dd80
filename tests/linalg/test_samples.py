"""Samples of a batch one by one: which, of what, and that they are views."""

import pytest
import torch

from gilib.linalg.samples import samples

pytestmark = pytest.mark.usefixtures("float64")


def test_every_sample_once_and_what_they_share_each_time():
    """No leading axes are one sample."""
    own, shared = torch.arange(12.0).reshape(2, 3, 2), torch.arange(3.0)[:, None]
    found = [(a.tolist(), b.tolist(), c) for a, b, c in samples((2, 3), own, shared, None, axes=1)]
    assert found == [(own[i, j].tolist(), [float(j)], None) for i in range(2) for j in range(3)]
    (pair,) = samples((), torch.eye(2), torch.ones(3, 1))
    assert torch.equal(pair[0], torch.eye(2)) and torch.equal(pair[1], torch.ones(3, 1))


def test_what_is_added_to_a_view_is_added_to_the_tensor():
    total, each = torch.zeros(3, 1), torch.zeros(2, 3, 1)
    for a, b in samples((2, 3), total, each, axes=1):
        a.add_(1.0)
        b.add_(1.0)
    assert total.flatten().tolist() == [2.0, 2.0, 2.0] and torch.equal(each, torch.ones(2, 3, 1))
