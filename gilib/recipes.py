"""What gilib recommends, in one place: models and settings of their training, read by estimator and study."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gilib import models
from gilib.kernels import RBF
from gilib.likelihoods import Categorical, Gaussian, Likelihood
from gilib.likelihoods.per_output import PerOutputGaussian
from gilib.network import Network
from gilib.objectives import elbo
from gilib.posteriors import Factorised, FreeGaussian, GlobalInducing, Posterior
from gilib.posteriors.pseudo import signed_one_hot
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike, ReplicaGenerators
from gilib.training import Adam, History, LinearDecay, fit
from gilib.training.gradients.objective import preferred_estimator
from gilib.validation import check_choice, check_count, check_tensor


class Trained(NamedTuple):
    """What a recipe gives.

    Attributes:
        network: trained.
        likelihood: trained.
        history: of the training.
    """

    network: Network
    likelihood: Likelihood
    history: History


@dataclass(frozen=True)
class Recipe(ABC):
    """A model with settings of its training, for normalised inputs and targets.

    Args:
        steps: of Adam.
        lr: its learning rate,
        flat: constant for this part of the training, then falling in a straight line to 0.
        num_samples: draws a step.
        batch_size: points a step, at most; smaller data sets are taken whole.
        num_inducing: M, at most: random training rows.
        noise_variance: where that of regression starts, of targets of variance 1.
        label_scale: size of the pseudo-outputs of classes, plus for the right one, minus for the others.
    """

    steps: int = 1000
    lr: float = 0.05
    flat: float = 0.5
    num_samples: int = 5
    batch_size: int = 400
    num_inducing: int = 200
    noise_variance: float = 0.05
    label_scale: float = 2.0

    @abstractmethod
    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """A new network.

        Args:
            points: where inducing points start, `[R, M, D]`.
            targets: theirs, `[R, M, O]`.
            replicas: of the network.
            generator: source of the initial values.
        """

    def likelihood(
        self, outputs: int, classes: int | None = None, replicas: tuple[int, ...] = ()
    ) -> Likelihood:
        """Classes, or noise of learned size, of every output its own."""
        if classes is not None:
            return Categorical()
        if outputs == 1:
            return Gaussian(self.noise_variance, learn=True, replicas=replicas)
        return PerOutputGaussian([self.noise_variance] * outputs, learn=True, replicas=replicas)

    def build(
        self, x: Tensor, y: Tensor, *, classes: int | None = None, seed: int | Sequence[int] = 0
    ) -> tuple[Network, Likelihood]:
        """A new network with a likelihood, its inducing points a random choice of the data.

        Args:
            x: training inputs, `[N, D]` or `[R, N, D]`, normalised.
            y: training targets, `[N, O]`, normalised, or labels `[N]`; or with replicas.
            classes: how many; None: regression.
            seed: of the choice and of the initial values, or R of them, for a network with replicas.
        """
        check_tensor(x, "x")
        targets = y if classes is None else signed_one_hot(y, classes, self.label_scale).to(x)
        check_tensor(targets, "y", x)
        seeds = [seed] if isinstance(seed, int) else list(seed)
        generators = [torch.Generator().manual_seed(s) for s in seeds]
        rows = [
            torch.randperm(x.shape[-2], generator=g)[: self.num_inducing].to(x.device) for g in generators
        ]
        points, outputs = (
            torch.stack([_of(part, r)[row] for r, row in enumerate(rows)]) for part in (x, targets)
        )
        replicas = () if isinstance(seed, int) else (len(seeds),)
        source = generators[0] if isinstance(seed, int) else ReplicaGenerators([s + 1 for s in seeds])
        if not replicas:
            points, outputs = points[0], outputs[0]
        net = self.network(points, outputs, replicas, source).to(x.device)
        return net, self.likelihood(targets.shape[-1], classes, replicas).to(x.device)

    def rule(self) -> Adam:
        """Adam at the recipe's rate and schedule."""
        return Adam(self.lr, schedule=LinearDecay(self.flat))

    def train(
        self,
        x: Tensor,
        y: Tensor,
        *,
        classes: int | None = None,
        seed: int | Sequence[int] = 0,
        **options: Any,
    ) -> Trained:
        """Build and train.

        Args:
            x: training inputs, as for `build`.
            y: training targets, likewise.
            classes: likewise.
            seed: likewise; also of the draws and minibatches.
            options: further arguments of `gilib.fit`, such as `progress`, `callbacks` or `checkpoint`; those
                of the recipe may be replaced, too.
        """
        net, likelihood = self.build(x, y, classes=classes, seed=seed)
        settings: dict[str, Any] = {
            "steps": self.steps,
            "rule": self.rule(),
            "num_samples": self.num_samples,
            "batch_size": min(self.batch_size, x.shape[-2]),
            "seed": seed,
        }
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))


@dataclass(frozen=True)
class NetworkRecipe(Recipe):
    """A ReLU network, factorised below a global last layer, under priors of learned scale.

    Args:
        hidden: widths of the hidden layers.
        lower: posterior of the layers below the last one.
        last: posterior of the last layer.
        prior: of all layers.

    >>> x = torch.randn(30, 3)
    >>> NetworkRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    hidden: tuple[int, ...] = (50,)
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
            posterior=[*[self.lower] * len(self.hidden), self.last],
            prior=self.prior,
            inducing_points=points,
            pseudo_outputs=targets,
            replicas=replicas,
            generator=generator,
        )


@dataclass(frozen=True)
class ProcessRecipe(Recipe):
    """A sparse Gaussian process, or a deep one with global inducing points; RBF kernels start at ℓ = √D.

    Args:
        num_inducing: M, at most.
        depth: layers of processes; 1: doubly stochastic inference, whose posterior over inducing outputs is
            a free Gaussian; the bound has a closed form then, and one draw a step is enough for regression.

    >>> x = torch.randn(30, 3)
    >>> ProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_inducing: int = 100
    depth: int = 1

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """One process, or several in a row."""
        kernel = RBF(lengthscale=math.sqrt(points.shape[-1]))
        inputs, outputs = points.shape[-1], targets.shape[-1]
        shared: dict[str, Any] = {"kernel": kernel, "inducing_points": points, "replicas": replicas}
        if self.depth == 1:
            return models.deep_gp(inputs, outputs, 1, posterior=FreeGaussian(), generator=generator, **shared)
        return models.deep_gp(
            inputs, outputs, self.depth, pseudo_outputs=targets, generator=generator, **shared
        )


RECIPES: dict[str, Recipe] = {
    "network": NetworkRecipe(),
    "gp": ProcessRecipe(num_samples=1),
    "deep_gp": ProcessRecipe(depth=2),
}


def recommended(model: str = "network", **changes: Any) -> Recipe:
    """The recipe that gilib recommends for a kind of model.

    Args:
        model: "network", "gp" or "deep_gp".
        changes: fields of the recipe that are to be others.

    Raises:
        ValueError: if there is no such model.
        TypeError: if its recipe has no such field.

    >>> recommended(steps=300).steps, recommended("gp").num_inducing
    (300, 100)
    """
    check_choice(model, RECIPES, "model")
    recipe = RECIPES[model]
    names = [entry.name for entry in dataclasses.fields(recipe)]
    for name in changes:
        if name not in names:
            raise TypeError(f"the recipe of a {model!r} has no {name!r}: it has {', '.join(names)}")
    return dataclasses.replace(recipe, **changes)


@torch.no_grad()
def bound(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    num_samples: int = 100,
    batch_size: int = 1000,
    generator: GeneratorLike | None = None,
) -> Tensor:
    """The ELBO per data point over all the data, to compare trained models by; `[R]` nats.

    Args:
        net: trained.
        likelihood: trained with it.
        x: all training inputs, `[N, D]` or `[R, N, D]`.
        y: all training targets.
        num_samples: S, draws for every batch.
        batch_size: points at a time.
        generator: source of the draws.

    >>> net, likelihood = recommended().build(torch.randn(30, 3), torch.randn(30, 1))
    >>> bound(net, likelihood, torch.randn(30, 3), torch.randn(30, 1)).shape
    torch.Size([])
    """
    check_count(batch_size, "batch_size")
    points, axis = x.shape[-2], -2 if y.is_floating_point() else -1
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for part, targets in zip(x.split(batch_size, -2), y.split(batch_size, axis), strict=True):
        size = part.shape[-2]
        if preferred_estimator(net) == "pointwise":
            value = elbo(
                net.estimate(num_samples, size, generator=generator),
                likelihood,
                part,
                targets,
                num_data=points,
            )
        else:
            drawn = net.draw(num_samples, generator=generator)
            value = elbo(drawn, likelihood, part, targets, num_data=points)
        total = total + value * (size / points)
    return total / points


def _of(values: Tensor, replica: int) -> Tensor:
    """The data of a replica, `[N, ...]`, of `[R, N, ...]` or those of all."""
    return values[replica] if values.dim() == 3 else values
