"""The recommended Bayesian neural network."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from gilib import models
from gilib.arguments import Count
from gilib.linalg import FactorisationError
from gilib.network import Network
from gilib.posteriors import Factorised, GlobalInducing, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Options, Recipe, Seed, Shape, Trained, bound
from gilib.training import DivergenceError


@dataclass(frozen=True)
class NetworkRecipe(Recipe):
    """A network with a global last layer above factorised layers, under priors of learned scale.

    The best nonlinearity depends on the data. So several are tried, each in a short training of its own, and
    the one with the largest bound is trained fully.

    Args:
        num_samples: draws a step; a trial takes half as many.
        hidden: widths of the hidden layers.
        activations: candidate nonlinearities, each in a form that `gilib.models.mlp` accepts; `build` uses
            the first.
        trial: number of steps of Adam in a trial.
        lower: posterior of the layers below the last one.
        last: posterior of the last layer.
        prior: prior of all layers.

    >>> import torch
    >>> x = torch.randn(30, 3)
    >>> NetworkRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_samples: Count = 10
    hidden: tuple[Count, ...] = (50,)
    activations: tuple[type[nn.Module] | nn.Module, ...] = (nn.ReLU, nn.GELU)
    trial: Count = 400
    lower: Posterior = field(default_factory=Factorised)
    last: Posterior = field(default_factory=GlobalInducing)
    prior: Prior = field(default_factory=lambda: NealPrior(learn=True))

    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        if not self.activations:
            raise ValueError("no nonlinearity to choose from: activations is empty")
        return models.mlp(
            points.shape[-1],
            self.hidden,
            targets.shape[-1],
            activation=self.activations[0],
            posterior=[*[self.lower] * len(self.hidden), self.last],
            prior=self.prior,
            inducing_points=points,
            pseudo_outputs=targets,
            replicas=replicas,
            generator=generator,
        )

    def _train(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> Trained:
        """Train with the nonlinearity of the largest bound; with replicas, of the largest mean bound."""
        candidates = [replace(self, activations=(each,)) for each in self.activations]
        if len(candidates) > 1 and self.hidden:
            best = max(candidates, key=lambda own: own._tried(x, y, classes, seed, options))
        else:
            best = self
        return super(NetworkRecipe, best)._train(x, y, classes, seed, options)

    def _tried(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> float:
        """Return the bound after a short training without callbacks; minus infinity if that diverges."""
        kept = {name: value for name, value in options.items() if name not in ("callbacks", "checkpoint")}
        draws, steps = (kept.get(name) or getattr(self, name) for name in ("num_samples", "steps"))
        short = {"num_samples": -(-draws // 2), "steps": min(self.trial, steps), "progress": False}
        try:
            net, likelihood, _ = super()._train(x, y, classes, seed, kept | short)
        except (DivergenceError, FactorisationError):
            return -math.inf
        seeds = [seed] if isinstance(seed, int) else seed
        source = torch.Generator(x.device).manual_seed(seeds[0])
        found = float(bound(net, likelihood, x, y, generator=source, weights=options.get("weights")).mean())
        return -math.inf if math.isnan(found) else found
