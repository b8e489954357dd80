"""Minibatches of an epoch."""

import pytest
import torch

from gilib.training.engine.minibatches import Minibatches


@pytest.mark.parametrize("size", [4, 5])
def test_an_epoch_sees_every_point_once(size):
    x = torch.arange(20.0)[:, None]
    batches = Minibatches(x, x, -2, -2, size, 3)
    for _ in range(3):
        seen = torch.cat([batches.next()[0] for _ in range(20 // size)])
        assert sorted(seen[:, 0].tolist()) == list(range(20))
