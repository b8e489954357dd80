"""log P - log Q of the draws of a whole network, where layers score theirs in the same way."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gilib.draws import Evaluated
from gilib.training.rules.layerwise import LayerRegression, weights_of


class Scores:
    """The sum over layers of what `ConjugateWeights.draw` says of one, with a call where that has several.

    Σ ½ [ΣE² - Σ_o w_oᵀP w_o + O log det P] + I log det G - O log det T, where G Gᵀ is the mode of Σ, T Tᵀ is
    V⁻¹, w is W̃ and P its prior precision: all factors' diagonals have one weighted sum of logarithms.

    Args:
        layers: all of a network.
    """

    def __init__(self, layers: Sequence[LayerRegression]):
        """Collect what does not change."""
        self.layers, counts = [layer.posterior for layer in layers], []
        self.precisions = [layer.layer.fan_in * layer.prior[..., None] for layer in layers]  # of W
        constants = [
            0.5 * own.outputs * layer.prior.log().sum(-1)
            for own, layer in zip(self.layers, layers, strict=True)
        ]
        for own in self.layers:
            inputs, outputs = own.centre.shape[-2:]
            counts += [-outputs] * inputs + [inputs] * outputs
        self.constant = torch.stack(constants).sum(0)
        self.counts = torch.tensor(counts).to(self.constant)

    def __call__(self, noise: Tensor, steps: Sequence[Evaluated]) -> Tensor:
        """log P - log Q, `[S, R]`, of the weights of `steps`, drawn from `noise` `[S, R, P]`."""
        factors = [factor for own in self.layers for factor in (own.precision_tril, own.noise_tril)]
        diagonals = torch.cat([factor.diagonal(dim1=-2, dim2=-1) for factor in factors], -1)
        log_dets = diagonals.log() @ self.counts + self.constant
        squares = noise.square().sum(-1)
        for step, precision in zip(steps, self.precisions, strict=True):
            squares = squares - (precision * weights_of(step).square()).sum((-2, -1))
        return torch.add(log_dets, squares, alpha=0.5)
