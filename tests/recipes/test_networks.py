"""The recipe of a network is as wide as its data allow."""

import pytest
import torch

import gilib


@pytest.mark.parametrize(("points", "width"), [(799, 25), (800, 50)])
def test_width_by_size(points, width):
    net, _ = gilib.recommended().build(torch.zeros(points, 3), torch.zeros(points, 1))
    assert next(iter(net.layers)).out_features == width
    given, _ = gilib.recommended(hidden=(7,)).build(torch.zeros(points, 3), torch.zeros(points, 1))
    assert next(iter(given.layers)).out_features == 7
