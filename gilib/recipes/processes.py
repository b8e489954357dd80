"""Recommended Gaussian processes: a single one, in closed form for regression, and deep ones."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gilib import models
from gilib.arguments import Count, CountOrZero
from gilib.kernels import RBF, Kernel, Matern
from gilib.kernels.modules import BasicKernel
from gilib.linalg import FactorisationError
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Options, Recipe, Seed, Shape, Trained
from gilib.training import Collapsed, fit
from gilib.validation import check_tensor

JITTER = {torch.float32: 1e-5, torch.float64: 1e-9}  # times the variance; noise below it cannot be learned
MOST = 5 * 10**7  # numbers in the covariances of inducing outputs that Adam trains
SUITED_CLASSES, SUITED_ROWS = 10, 2000  # most of a table of classes that a process suits: it takes seconds
SEARCHED_CLASSES = 3  # most of those whose bound is searched; of more, Adam is faster
SEARCHED_POINTS = 250  # most inducing points of that search, each of whose bounds takes several posteriors
TRAINED_POINTS = 100  # most inducing points by Adam of such a table
LEAST = 50  # smallest number of points on which kernels are compared
SD = 0.5  # prior deviation of log ℓ from what columns share; see the experiment `columns`
KERNELS = (
    Matern(smoothness=1.5, log_lengthscale_sd=SD),
    RBF(log_lengthscale_sd=SD),
    Matern(log_lengthscale_sd=SD),
    Matern(smoothness=0.5, log_lengthscale_sd=SD),
)
FINE = 1e-7  # nats per point; the evidence of kernels with parts has plateaus on the way up
STARTS = (1.0, 0.1)  # initial lengthscales, in units of √D: from a long one alone, waves are taken for noise


@dataclass(frozen=True)
class ProcessRecipe(Recipe):
    """A Gaussian process with a lengthscale for every input.

    Regression is trained by `gilib.training.Collapsed`, in float64. Every candidate kernel is searched from
    two lengthscales, on the inducing points (at least fifty), and the one with the best evidence is trained
    on all data. If there are few data, all of them are inducing points, and this is exact GP regression.
    Kernels that cannot be factorised are left out.

    Up to three classes of up to 2000 rows are trained by it, too, with the first kernel alone and up to 250
    inducing points. More classes or rows, targets with another likelihood than the Gaussian one, and networks
    with replicas are trained by Adam with the first kernel, as sparse processes; up to ten classes of up to
    2000 rows with up to 100 inducing points.

    Args:
        steps: largest number of L-BFGS steps, or number of Adam steps.
        num_samples: an argument of every recipe, without effect in regression, where bounds are in closed
            form.
        num_inducing: M, the largest number of inducing points.
        num_exact: in regression, data sets of up to this many points are all used as inducing points.
        kernels: candidate kernels, with lengthscales in units of √D. They have a prior log ℓ ~ N(c, 0.5²)
            with any centre c; without it, intervals are too narrow if there are many columns (see the
            experiment `columns`). Sums, products and kernels of some columns are searched from their own
            lengthscales alone.

    >>> x = torch.randn(30, 3)
    >>> ProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_samples: Count = 1
    num_inducing: Count = 500
    num_exact: CountOrZero = 1500
    kernels: tuple[Kernel, ...] = KERNELS

    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        return self._processes(models.sparse_gp, points, targets, replicas, generator)

    def classifier(
        self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike
    ) -> Network:
        return self._processes(models.gp_classifier, points, targets, replicas, generator)

    def _processes(
        self,
        build: Callable[..., Network],
        points: Tensor,
        targets: Tensor,
        replicas: Shape,
        generator: GeneratorLike,
    ) -> Network:
        return build(
            points.shape[-1],
            targets.shape[-1],
            kernel=in_diagonals(self.kernels[0], points.shape[-1]),
            inducing_points=points,
            replicas=replicas,
            generator=generator,
            jitter=JITTER[points.dtype],
        )

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """Return 1 for regression with Gaussian noise, where predictions are in closed form."""
        closed = classes is None and self.likelihood == "gaussian"
        return 1 if closed else super().enough(num_samples, classes)

    def _train(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> Trained:
        searched = self.likelihood == "gaussian" and is_searched(x.shape[-2], classes)
        if not searched or not isinstance(seed, int):
            own = self.with_at_most(TRAINED_POINTS) if suits_classes(x.shape[-2], classes) else self
            own._check_size(min(own.num_inducing, x.shape[-2]), classes or y.shape[-1])
            return Recipe._train(own, x, y, classes, seed, options)
        if classes is not None:
            own = self.with_at_most(SEARCHED_POINTS)
            settings: Options = {"rule": Collapsed(), "batch_size": None, "num_samples": 1}
            return Recipe._train(own, check_tensor(x, "x").double(), y, classes, seed, settings | options)
        x, y = check_tensor(x, "x").double(), check_tensor(y, "y").double()
        few = self.rows(x, torch.Generator().manual_seed(seed))
        rows = slice(None) if len(x) <= self.num_exact else few
        compared = self.compared(x, y, torch.Generator().manual_seed(seed))
        weights = part_of(options.get("weights"), compared)
        candidates = self.candidates(x[compared], y[compared], weights)
        return first_that_factorises(candidates, lambda own, start: own.climb(x, y, rows, start, **options))

    def with_at_most(self, points: int) -> ProcessRecipe:
        """Return this recipe with at most so many inducing points; warn if someone has asked for more."""
        if self.num_inducing > points and self.num_inducing != ProcessRecipe.num_inducing:
            message = (
                f"num_inducing={self.num_inducing}: a process of so few classes and rows has {points} at most"
            )
            warnings.warn(message, stacklevel=2)
        return replace(self, num_inducing=min(self.num_inducing, points))

    def _check_size(self, points: int, outputs: int) -> None:
        if outputs * points**2 > MOST:
            raise ValueError(
                f"a process of {outputs} outputs has a covariance of {points} inducing points for each, "
                f"{outputs * points**2 / 1e6:.0f} million numbers, which takes gigabytes and hours: take "
                f"num_inducing={math.isqrt(MOST // outputs)} or fewer, or a network"
            )

    def compared(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """Return the rows of the data on which kernels are compared.

        These are the inducing points, or fifty rows if there are fewer of them. If all targets in these rows
        are equal, a row with another target is added.
        """
        found = replace(self, num_inducing=max(self.num_inducing, LEAST)).rows(x, generator)
        for column in y.mT:
            others = (column != column[found[0]]).nonzero()[:1, 0]
            if bool((column[found] == column[found[0]]).all()):
                found = torch.cat([found, others])
        return found

    def candidates(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None
    ) -> list[tuple[ProcessRecipe, Trained]]:
        """Return recipes of a single kernel, trained on some of the data, the best one first."""
        if not self.kernels:
            raise ValueError("no kernel to choose from: kernels is empty")
        found, failed = [], None
        for kernel, shorter in itertools.product(self.kernels, STARTS):
            if shorter != 1.0 and not isinstance(kernel, RBF):
                continue
            own = replace(self, kernels=(kernel,))
            try:
                trained = own.climb(x, y, slice(None), shorter=shorter, progress=False, weights=weights)
                found.append((own, trained))
            except FactorisationError as error:
                failed = error
        if failed is not None and not found:
            raise failed
        return sorted(found, key=lambda pair: -float(pair[1].history.elbo[-1]))

    def climb(
        self,
        x: Tensor,
        y: Tensor,
        rows: Tensor | slice,
        start: Trained | None = None,
        shorter: float = 1.0,
        **options: Any,
    ) -> Trained:
        """Train a process with inducing points at some rows of x `[N, D]`.

        It starts from the hyper-parameters of another one, `start`, or else from the recipe's own, with
        lengthscales `shorter` by that factor.
        """
        source = torch.Generator().manual_seed(0)  # nothing is drawn: the posterior starts at zero
        net = self.network(x[rows], y[rows], (), source).to(x.device)
        likelihood = self.new_likelihood(y).to(x.device)
        if start is not None:
            likelihood.load_state_dict(start.likelihood.state_dict())
            kernel = start.network.state_dict().items()
            known = {name: value for name, value in kernel if "hyperparameters" in name}
            net.load_state_dict(known, strict=False)
        for module in (m for m in net.modules() if isinstance(m, BasicKernel) and shorter != 1.0):
            with torch.no_grad():
                module.log["lengthscale"] += math.log(shorter)
        rule = Collapsed() if isinstance(self.kernels[0], RBF) else Collapsed(tolerance=FINE)
        settings: Options = {"steps": self.steps, "rule": rule, "num_samples": 1}
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))


def first_that_factorises(
    candidates: Sequence[tuple[ProcessRecipe, Trained]], train: Callable[[ProcessRecipe, Trained], Trained]
) -> Trained:
    """Train the first candidate, the best one; if its kernel cannot be factorised, the next."""
    for own, start in candidates[:-1]:
        with contextlib.suppress(FactorisationError):
            return train(own, start)
    return train(*candidates[-1])


def part_of(weights: Tensor | None, rows: Tensor) -> Tensor | None:
    """Return the weights of some rows, if there are any."""
    return None if weights is None else weights[rows]


def suits_classes(rows: int, classes: int | None) -> bool:
    """Return whether there are classes, so few and of so few rows that a process of them takes seconds."""
    return classes is not None and classes <= SUITED_CLASSES and rows <= SUITED_ROWS


def is_searched(rows: int, classes: int | None) -> bool:
    """Return whether a process with Gaussian noise, or of classes, is trained by `Collapsed`, not by Adam."""
    return classes is None or (classes <= SEARCHED_CLASSES and suits_classes(rows, classes))


def in_diagonals(kernel: Kernel, inputs: int) -> Kernel:
    """Return a kernel whose one lengthscale was in units of √D in units of the inputs; others unchanged."""
    if not isinstance(kernel, RBF) or not isinstance(kernel.lengthscale, int | float):
        return kernel
    return replace(kernel, lengthscale=kernel.lengthscale * math.sqrt(inputs))


@dataclass(frozen=True)
class DeepProcessRecipe(Recipe):
    """A deep Gaussian process with global inducing points; the lengthscales of its RBF kernels start at √D.

    Args:
        num_inducing: M, the largest number of inducing points.
        depth: number of layers.

    >>> x = torch.randn(30, 3)
    >>> DeepProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_inducing: Count = 100
    depth: Count = 2

    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        return models.deep_gp(
            points.shape[-1],
            targets.shape[-1],
            self.depth,
            kernel=RBF(lengthscale=math.sqrt(points.shape[-1])),
            inducing_points=points,
            pseudo_outputs=targets,
            replicas=replicas,
            generator=generator,
        )
