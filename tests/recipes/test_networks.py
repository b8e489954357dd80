"""The recipe of a network: widths and nonlinearity are what its reader gives."""

import torch
from torch import nn

import gilib


def test_widths_and_nonlinearity_are_those_of_the_recipe():
    changes = {"hidden": (7, 6), "activation": nn.Softplus(2.0)}
    net, _ = gilib.recommended(**changes).build(torch.zeros(9, 3), torch.zeros(9, 1))
    layers = list(net.layers)
    assert [layer.out_features for layer in layers[::2]] == [7, 6, 1]
    assert all(layer.module.beta == 2.0 for layer in layers[1::2]) and len(layers) == 5
