"""Recommended networks."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from gilib import models
from gilib.network import Network
from gilib.posteriors import Factorised, GlobalInducing, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Recipe


@dataclass(frozen=True)
class NetworkRecipe(Recipe):
    """A smooth network, factorised below a global last layer, under priors of learned scale.

    Args:
        num_samples: draws a step.
        hidden: widths of the hidden layers.
        activation: between layers, as `gilib.models.mlp` takes it.
        lower: posterior of the layers below the last one.
        last: posterior of the last layer.
        prior: of all layers.

    >>> import torch
    >>> x = torch.randn(30, 3)
    >>> NetworkRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_samples: int = 10
    hidden: tuple[int, ...] = (50,)
    activation: type[nn.Module] | nn.Module = nn.GELU
    lower: Posterior = field(default_factory=Factorised)
    last: Posterior = field(default_factory=GlobalInducing)
    prior: Prior = field(default_factory=lambda: NealPrior(learn=True))

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """A multilayer perceptron."""
        return models.mlp(
            points.shape[-1],
            self.hidden,
            targets.shape[-1],
            activation=self.activation,
            posterior=[*[self.lower] * len(self.hidden), self.last],
            prior=self.prior,
            inducing_points=points,
            pseudo_outputs=targets,
            replicas=replicas,
            generator=generator,
        )
