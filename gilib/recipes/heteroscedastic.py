"""The recommended Gaussian process for noise that varies with the inputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from gilib import models
from gilib.arguments import Count, Positive
from gilib.kernels import RBF, Kernel
from gilib.layers import GP
from gilib.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, PerOutputGaussian
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Options, Recipe, Seed, Shape, Trained
from gilib.recipes.processes import JITTER, SD, ProcessRecipe, first_that_factorises, in_diagonals, part_of
from gilib.training import Collapsed, fit
from gilib.validation import check_tensor


@dataclass(frozen=True)
class HeteroscedasticProcessRecipe(Recipe):
    """Two Gaussian processes, for the mean and for the log variance of the noise; for regression.

    The process of the mean is trained with constant noise, on some of the rows; from there
    `gilib.training.Collapsed` trains both on all rows, in float64.

    Args:
        steps: largest number of L-BFGS steps with varying noise.
        num_samples: without effect here, because bounds are in closed form.
        tolerance: nats per point; training ends after three steps in a row that gain less.
        num_inducing: largest number of inducing points of the noise's process, and the number of rows that
            decide on the kernel.
        mean: recipe of the mean's process.
        noise_kernel: kernel of the log variance; it varies by ±1.4 at the start, and its lengthscale is in
            units of √D.

    >>> x = torch.randn(30, 3)
    >>> HeteroscedasticProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (2,)
    """

    steps: Count = 400
    num_samples: Count = 1
    tolerance: Positive = 3e-4
    mean: ProcessRecipe = field(default_factory=ProcessRecipe)
    noise_kernel: RBF = RBF(variance=2.0, log_lengthscale_sd=SD)

    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        kernel = in_diagonals(self.mean.kernels[0], points.shape[-1])
        return self._network(points, points, kernel, targets.shape[-1])

    def new_likelihood(self, y: Tensor, classes: int | None = None, replicas: Shape = ()) -> Likelihood:
        if self.likelihood != "gaussian":
            raise ValueError(
                f"a heteroscedastic_gp has Gaussian noise, and likelihood={self.likelihood!r} has a "
                "variance of its own: use 'network', 'gp' or 'deep_gp', or 'auto' in an estimator"
            )
        if classes is not None:
            raise ValueError(
                "a heteroscedastic_gp is for regression, because classes have no noise that could vary: use "
                "'network', 'gp' or 'deep_gp', or 'auto' in an estimator"
            )
        if replicas:
            raise ValueError("this recipe trains one model at a time: give one seed")
        return HeteroscedasticGaussian([self.noise_variance] * y.shape[-1])

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """Return 1, because predictions are in closed form."""
        return 1

    def _train(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> Trained:
        self.new_likelihood(y, classes, () if isinstance(seed, int) else (len(seed),))
        assert isinstance(seed, int)
        x, y = check_tensor(x, "x").double(), check_tensor(y, "y").double()
        tried = replace(self.mean, num_inducing=self.num_inducing)
        few = tried.compared(x, y, torch.Generator().manual_seed(seed))
        weights = part_of(options.get("weights"), few)
        candidates = tried.candidates(x[few], y[few], weights)
        rows, noise_rows = (each.rows(x, torch.Generator().manual_seed(seed)) for each in (self.mean, self))
        points = x if len(x) <= self.mean.num_exact else x[rows], x[noise_rows]
        return first_that_factorises(candidates, lambda _, start: self._climb(x, y, points, start, options))

    def _climb(
        self, x: Tensor, y: Tensor, points: tuple[Tensor, Tensor], start: Trained, options: Options
    ) -> Trained:
        """Train both processes, with these inducing points, from one trained with constant noise."""
        (known,) = start.network.layers
        assert isinstance(known, GP) and isinstance(start.likelihood, Gaussian | PerOutputGaussian)
        noise = start.likelihood.noise_variance.detach().reshape(-1).tolist()
        net = self._network(*points, known.kernel, y.shape[-1])
        mean = next(module for module in net.modules() if isinstance(module, GP))
        assert mean.hyperparameters is not None and known.hyperparameters is not None
        mean.hyperparameters.load_state_dict(known.hyperparameters.state_dict())
        likelihood = HeteroscedasticGaussian(noise).to(x.device)
        settings: Options = {"steps": self.steps, "rule": Collapsed(self.tolerance), "num_samples": 1}
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))

    def _network(self, points: Tensor, noise_points: Tensor, kernel: Kernel, outputs: int) -> Network:
        return models.heteroscedastic_gp(
            points.shape[-1],
            outputs,
            inducing_points=points,
            noise_inducing_points=noise_points,
            kernel=kernel,
            noise_kernel=in_diagonals(self.noise_kernel, points.shape[-1]),
            dtype=points.dtype,
            jitter=JITTER[points.dtype],
        ).to(points.device)
