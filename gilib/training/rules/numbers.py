"""The numbers of a step of BALI that the host computes: the length of its gradient steps, and rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def rate_at(update_rate: float, step: int | Tensor) -> float | Tensor:
    """γ = β / (1 - (1-β)^t), a number or in float64; 1 at the first step.

    >>> rate_at(0.5, 1), round(rate_at(0.5, 2), 3)
    (1.0, 0.667)
    """
    kept = math.log1p(-update_rate) if update_rate < 1.0 else -math.inf  # log (1-β)
    if isinstance(step, int):
        return -update_rate / math.expm1(step * kept)
    return -update_rate / torch.expm1(step.double() * kept)


def steps_of(count: Tensor, active: Tensor) -> int | Tensor:
    """How many steps there have been, one number where all replicas that train have had as many."""
    known = count[active] if bool(active.any()) else count.reshape(-1)
    return int(known[0]) if bool((known == known[0]).all()) else count.clone()


class Numbers:
    """α, and γ of every layer, at a step: numbers, or tensors that the host writes between steps.

    Args:
        like: a tensor `[R, I]` of the network's kind.
        layers: how many there are.
        steady: whether they are tensors, the same ones at every step.
    """

    lr: float | Tensor
    rates: list[float | Tensor]

    def __init__(self, like: Tensor, layers: int, steady: bool):
        """Nothing is set yet."""
        self.like, self.steady = like[..., 0], steady
        self.lr = self.like.new_zeros(())
        self.rates = [torch.zeros_like(self.like) for _ in range(layers)]

    def set(self, lr: float, rates: Sequence[float | Tensor]) -> None:
        """Those of the next step, each γ a number or `[R]`."""
        if self.steady:
            for own, value in zip([self.lr, *self.rates], [lr, *rates], strict=True):
                assert isinstance(own, Tensor)
                if isinstance(value, Tensor):
                    own.copy_(value)
                else:
                    own.fill_(value)
        else:
            self.lr = lr
            self.rates = [rate if isinstance(rate, float) else rate.to(self.like) for rate in rates]
