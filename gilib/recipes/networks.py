"""Recommended networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from gilib import models
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.posteriors import Factorised, GlobalInducing, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Recipe, as_tensors
from gilib.validation import check_tensor

FEW = 800  # data: below, the bound prefers the narrow layer, above the wide one
NARROW, WIDE = (25,), (50,)


@dataclass(frozen=True)
class NetworkRecipe(Recipe):
    """A ReLU network, factorised below a global last layer, under priors of learned scale.

    Args:
        hidden: widths of the hidden layers; None: one of 25 for fewer than 800 data, else one of 50.
        lower: posterior of the layers below the last one.
        last: posterior of the last layer.
        prior: of all layers.

    >>> import torch
    >>> x = torch.randn(30, 3)
    >>> NetworkRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    hidden: tuple[int, ...] | None = None
    lower: Posterior = field(default_factory=Factorised)
    last: Posterior = field(default_factory=GlobalInducing)
    prior: Prior = field(default_factory=lambda: NealPrior(learn=True))

    def build(
        self, x: Tensor, y: Tensor, *, classes: int | None = None, seed: int | Sequence[int] = 0
    ) -> tuple[Network, Likelihood]:
        """A new network, as wide as its data allow; arguments are those of every recipe."""
        (x, y), sized = as_tensors(x, y), self
        if self.hidden is None:
            sized = replace(self, hidden=NARROW if check_tensor(x, "x").shape[-2] < FEW else WIDE)
        return super(NetworkRecipe, sized).build(x, y, classes=classes, seed=seed)

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """A multilayer perceptron."""
        hidden = WIDE if self.hidden is None else self.hidden
        return models.mlp(
            points.shape[-1],
            hidden,
            targets.shape[-1],
            posterior=[*[self.lower] * len(hidden), self.last],
            prior=self.prior,
            inducing_points=points,
            pseudo_outputs=targets,
            replicas=replicas,
            generator=generator,
        )
