"""Recommended Gaussian processes: one, whose posterior has a closed form for regression, and deep ones."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gilib import models
from gilib.arguments import Count, CountOrZero
from gilib.kernels import RBF, Matern
from gilib.kernels.modules import BasicKernel
from gilib.linalg import FactorisationError
from gilib.network import Network
from gilib.posteriors import FreeGaussian
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Recipe, Trained
from gilib.training import Collapsed, fit
from gilib.validation import check_tensor

JITTER = {torch.float32: 1e-5, torch.float64: 1e-9}  # of the variance; noise below it cannot be learned
LEAST = 50  # points by whose evidence kernels are compared
SD = 0.5  # of log ℓ around what columns share a priori; the experiment `columns` says what it is for
KERNELS = (
    Matern(smoothness=1.5, log_lengthscale_sd=SD),
    RBF(log_lengthscale_sd=SD),
    Matern(log_lengthscale_sd=SD),
    Matern(smoothness=0.5, log_lengthscale_sd=SD),
)
STARTS = (1.0, 0.1)  # lengthscales of a search, in units of √D: from a long one, waves are noise


@dataclass(frozen=True)
class ProcessRecipe(Recipe):
    """A Gaussian process with a lengthscale for every input.

    Regression is trained by `gilib.training.Collapsed`, in float64. Kernels are searched from two lengths
    and compared by their evidence on the inducing points, at least fifty; the best one goes on with all data:
    as exact GP regression if they are few, which is a sparse process whose inducing points are all of them. A
    kernel that cannot be factorised is left out.
    Classification, and networks with replicas, are trained by Adam, with the first of the kernels.

    Args:
        steps: of L-BFGS at most, or of Adam.
        num_samples: as every recipe's; bounds of regression are in closed form.
        num_inducing: M, at most.
        num_exact: up to so many data are all inducing points of regression.
        kernels: candidates; lengthscales in units of √D. They have a prior, log ℓ ~ N(c, 0.5²) with any c:
            without it intervals are too narrow where columns are many (the experiment `columns`).

    >>> x = torch.randn(30, 3)
    >>> ProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_samples: Count = 1
    num_inducing: Count = 500
    num_exact: CountOrZero = 1500
    kernels: tuple[RBF, ...] = KERNELS

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """One process with the first kernel."""
        kernel = in_diagonals(self.kernels[0], points.shape[-1])
        return models.deep_gp(
            points.shape[-1],
            targets.shape[-1],
            1,
            posterior=FreeGaussian(),
            kernel=kernel,
            inducing_points=points,
            replicas=replicas,
            generator=generator,
            jitter=JITTER[points.dtype],
        )

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """One for regression, where predictions are in closed form."""
        return 1 if classes is None else super().enough(num_samples, classes)

    def _train(
        self, x: Tensor, y: Tensor, classes: int | None, seed: int | Sequence[int], options: dict[str, Any]
    ) -> Trained:
        if classes is not None or not isinstance(seed, int):
            return super()._train(x, y, classes, seed, options)
        x, y = check_tensor(x, "x").double(), check_tensor(y, "y").double()
        few = self.rows(x, torch.Generator().manual_seed(seed))
        rows = slice(None) if len(x) <= self.num_exact else few
        compared = self.compared(x, y, torch.Generator().manual_seed(seed))
        candidates = self.candidates(x[compared], y[compared])
        for own, start in candidates[:-1]:
            with contextlib.suppress(FactorisationError):
                return own.climb(x, y, rows, start, **options)
        own, start = candidates[-1]
        return own.climb(x, y, rows, start, **options)

    def compared(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
        """The inducing points, others if these are few, and of a target that is the same at all, another."""
        found = replace(self, num_inducing=max(self.num_inducing, LEAST)).rows(x, generator)
        for column in y.mT:
            others = (column != column[found[0]]).nonzero()[:1, 0]
            if bool((column[found] == column[found[0]]).all()):
                found = torch.cat([found, others])
        return found

    def candidates(self, x: Tensor, y: Tensor) -> list[tuple[ProcessRecipe, Trained]]:
        """Recipes of a single kernel, trained on some of the data, the best one first.

        Raises:
            ValueError: if there are none.
            FactorisationError: if none can be factorised.
        """
        if not self.kernels:
            raise ValueError("no kernel to choose from: kernels is empty")
        found, failed = [], None
        for kernel, shorter in itertools.product(self.kernels, STARTS):
            own = replace(self, kernels=(kernel,))
            try:
                found.append((own, own.climb(x, y, slice(None), shorter=shorter, progress=False)))
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
        """A process at some rows of the data, from the hyper-parameters of another if there is one.

        Args:
            x: `[N, D]`.
            y: `[N, O]`.
            rows: of the inducing points.
            start: the other one.
            shorter: factor of the lengthscales at the start.
            options: of `gilib.fit`.
        """
        source = torch.Generator().manual_seed(0)  # nothing is drawn: the posterior starts at zero
        net = self.network(x[rows], y[rows], (), source).to(x.device)
        likelihood = self.likelihood(y.shape[-1]).to(x.device)
        if start is not None:
            likelihood.load_state_dict(start.likelihood.state_dict())
            kernel = start.network.state_dict().items()
            known = {name: value for name, value in kernel if "hyperparameters" in name}
            net.load_state_dict(known, strict=False)
        for module in (m for m in net.modules() if isinstance(m, BasicKernel)):
            with torch.no_grad():
                module.log["lengthscale"] += math.log(shorter)
        settings: dict[str, Any] = {"steps": self.steps, "rule": Collapsed(), "num_samples": 1}
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))


def in_diagonals(kernel: RBF, inputs: int) -> RBF:
    """The kernel with its one lengthscale in units of √D."""
    if not isinstance(kernel.lengthscale, int | float):
        return kernel
    return replace(kernel, lengthscale=kernel.lengthscale * math.sqrt(inputs))


@dataclass(frozen=True)
class DeepProcessRecipe(Recipe):
    """A deep Gaussian process with global inducing points; RBF kernels start at ℓ = √D.

    Args:
        num_inducing: M, at most.
        depth: layers of processes.

    >>> x = torch.randn(30, 3)
    >>> DeepProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (1,)
    """

    num_inducing: Count = 100
    depth: Count = 2

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """Several processes in a row."""
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
