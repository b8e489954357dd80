"""Minibatches of an epoch."""

import pytest
import torch

from gilib.training.engine.minibatches import Minibatches


@pytest.mark.parametrize("size", [4, 5, 6])
def test_an_epoch_sees_every_point_at_most_once(size):
    x = torch.arange(20.0)[:, None]
    batches, epochs, count = Minibatches(x, x, -2, -2, size, 3), [], 20 // size
    for _ in range(3):
        epochs.append(torch.cat([batches.next()[0] for _ in range(count)]).flatten().tolist())
        assert len(set(epochs[-1])) == count * size
    assert epochs[0] != epochs[1] != epochs[2]
