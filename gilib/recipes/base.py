"""What every recipe is: a model with settings of its training; and the bound that compares trained ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gilib.arguments import Checked, Count, Fraction, Positive, checked
from gilib.config import plain
from gilib.likelihoods import Categorical, Gaussian, Likelihood
from gilib.likelihoods.per_output import PerOutputGaussian
from gilib.network import Network
from gilib.objectives import elbo
from gilib.posteriors.pseudo import signed_one_hot
from gilib.randomness import GeneratorLike, ReplicaGenerators
from gilib.training import Adam, History, LinearDecay, fit
from gilib.training.engine.minibatches import points_axis
from gilib.training.gradients.objective import preferred_estimator
from gilib.validation import as_inputs, as_tensor, check_tensor

LARGEST = 31 * 2**20  # bytes; glibc learns nothing from blocks above 32 MB


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

    def __repr__(self) -> str:
        """Shapes of the network, the likelihood, and the history, in a line."""
        net = f"{list(self.network.input_shape)} to {list(self.network.output_shape)}"
        return f"Trained(network of {net}, {type(self.likelihood).__name__}, {self.history})"


@dataclass(frozen=True)
class Recipe(Checked, ABC):
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

    steps: Count = 1000
    lr: Positive = 0.05
    flat: Fraction = 0.5
    num_samples: Count = 5
    batch_size: Count = 400
    num_inducing: Count = 200
    noise_variance: Positive = 0.05
    label_scale: Positive = 2.0

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

    @checked
    def build(
        self, x: Tensor, y: Tensor, *, classes: Count | None = None, seed: int | Sequence[int] = 0
    ) -> tuple[Network, Likelihood]:
        """A new network with a likelihood, its inducing points a random choice of the data.

        Args:
            x: training inputs, `[N, D]` or `[R, N, D]`, normalised.
            y: training targets, `[N, O]`, normalised, or labels `[N]`; or with replicas.
            classes: how many; None: regression.
            seed: of the choice and of the initial values, or R of them, for a network with replicas.
        """
        (x, y), seed = as_tensors(x, y), plain(seed)
        _check_kind(y, classes)
        _check_points(check_tensor(x, "x"), y)
        targets = y if classes is None else signed_one_hot(y, classes, self.label_scale).to(x)
        check_tensor(targets, "y", x)
        seeds = [seed] if isinstance(seed, int) else list(seed)
        generators = [torch.Generator().manual_seed(s) for s in seeds]
        rows = [self.rows(x, generator) for generator in generators]
        points, outputs = (
            torch.stack([_of(part, r)[row] for r, row in enumerate(rows)]) for part in (x, targets)
        )
        replicas = () if isinstance(seed, int) else (len(seeds),)
        source = generators[0] if isinstance(seed, int) else ReplicaGenerators([s + 1 for s in seeds])
        if not replicas:
            points, outputs = points[0], outputs[0]
        net = self.network(points, outputs, replicas, source).to(x.device)
        return net, self.likelihood(targets.shape[-1], classes, replicas).to(x.device)

    def rows(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """A random choice of the data for inducing points, `[M]`."""
        return torch.randperm(x.shape[-2], generator=generator)[: self.num_inducing].to(x.device)

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """How many of so many draws a prediction needs: all, unless it is the same after fewer."""
        return num_samples

    def rule(self) -> Adam:
        """Adam at the recipe's rate and schedule."""
        return Adam(self.lr, schedule=LinearDecay(self.flat))

    @checked
    def train(
        self,
        x: Tensor,
        y: Tensor,
        *,
        classes: Count | None = None,
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
        x, y = as_tensors(x, y)
        _check_kind(y, classes)
        _check_points(check_tensor(x, "x"), y)
        keep_freed_memory()
        return self._train(x, y, classes, plain(seed), options)

    def _train(
        self, x: Tensor, y: Tensor, classes: int | None, seed: int | Sequence[int], options: dict[str, Any]
    ) -> Trained:
        """`train`, of tensors."""
        net, likelihood = self.build(x, y, classes=classes, seed=seed)
        settings: dict[str, Any] = {
            "steps": self.steps,
            "rule": self.rule(),
            "num_samples": self.num_samples,
            "batch_size": min(self.batch_size, x.shape[-2]),
            "seed": seed,
        }
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))


def keep_freed_memory() -> None:
    """Let the process keep the memory that a step frees, for the next one, where glibc manages it.

    glibc, the C library of most Linux systems, gives large blocks back to the system, and a step asks for
    them again page by page: up to half of its time where memory is slow. It keeps blocks up to the size of
    the largest one that it has seen freed. Here it sees one, of which no page is touched.
    """
    torch.empty(LARGEST, dtype=torch.uint8, device="cpu")


@checked
@torch.no_grad()
def bound(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    num_samples: Count = 100,
    batch_size: Count = 1000,
    generator: GeneratorLike | None = None,
) -> Tensor:
    """The ELBO per data point over all the data, to compare trained models by; `[R]` nats.

    Args:
        net: trained.
        likelihood: trained with it.
        x: all training inputs, `[N, D]` or `[R, N, D]`, or images.
        y: all training targets.
        num_samples: S, draws for every batch.
        batch_size: points at a time.
        generator: source of the draws.

    >>> import gilib
    >>> net, likelihood = gilib.recommended("network").build(torch.randn(30, 3), torch.randn(30, 1))
    >>> bound(net, likelihood, torch.randn(30, 3), torch.randn(30, 1)).shape
    torch.Size([])
    """
    like = net.layers.reference_tensor()
    x, y = as_inputs(x, "x", like), as_tensor(y, "y", like)
    x = x if like is None else x.to(like)
    y = y.to(x) if y.is_floating_point() else y
    places, axis = -1 - len(net.input_shape), -2 if y.is_floating_point() else -1
    points = x.shape[places]
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for part, targets in zip(x.split(batch_size, places), y.split(batch_size, axis), strict=True):
        size = part.shape[places]
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


def _check_points(x: Tensor, y: Tensor) -> None:
    """Raise unless x holds numbers with fractions, and y as many points."""
    if not x.is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}: convert it, as by x.float()")
    if x.dim() > 3:
        raise ValueError(
            f"x must be a table [N, D], got {list(x.shape)}: models of images are in gilib.models"
        )
    targets = y.shape[points_axis(y)]
    if targets != x.shape[-2]:
        raise ValueError(f"x holds {x.shape[-2]} points and y {targets}: give one target for each")


def _check_kind(y: Tensor, classes: int | None) -> None:
    """Raise for labels that nobody counts, and for a vector of targets."""
    if classes is None and y.dim() < 2:
        raise ValueError(
            f"y must hold targets [N, O], got {y.dtype} of shape {list(y.shape)}: write y[:, None] for one "
            "output, or classes=... if these are labels"
        )


def as_tensors(x: object, y: object) -> tuple[Tensor, Tensor]:
    """Inputs and targets, of which those of numpy become tensors."""
    return as_inputs(x, "x"), as_tensor(y, "y")


def _of(values: Tensor, replica: int) -> Tensor:
    """The data of a replica, `[N, ...]`, of `[R, N, ...]` or those of all."""
    return values[replica] if values.dim() == 3 else values
