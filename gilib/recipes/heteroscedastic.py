"""The recommended Gaussian process for noise that varies with the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from gilib import models
from gilib.arguments import Count, Positive
from gilib.kernels import RBF, Kernel
from gilib.layers import GP, Concat
from gilib.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood, PerOutputGaussian
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Recipe, Trained
from gilib.recipes.processes import JITTER, SD, ProcessRecipe, in_diagonals
from gilib.training import Collapsed, fit
from gilib.validation import check_tensor

FEW_STEPS, WIDE = 6, 0.3  # of the second start: steps of the mean, and the initial variance of its noise


@dataclass(frozen=True)
class HeteroscedasticProcessRecipe(Recipe):
    """Two Gaussian processes, for the mean and for the log variance of the noise; for regression.

    First, the process of the mean is trained with constant noise. Its residuals give a starting point for the
    process of the noise, and `gilib.training.Collapsed` trains both further, in float64. But a mean that
    already fits all it can leaves nothing for varying noise to explain. So a second search starts from a mean
    after very few steps, with large noise. The better bound on the inducing points decides which start is
    used on all data.

    Args:
        steps: largest number of L-BFGS steps with varying noise.
        num_samples: an argument of every recipe, without effect here, because bounds are in closed form.
        tolerance: nats per point; training ends after three steps in a row that gain less.
        num_inducing: largest number of inducing points of the noise's process.
        mean: recipe of the mean's process.
        noise_kernel: kernel of the log variance; it varies by ±1.4 at the start, and its lengthscale is in
            units of √D.

    >>> x = torch.randn(30, 3)
    >>> HeteroscedasticProcessRecipe(steps=2).train(x, x[:, :1], progress=False).network.output_shape
    (2,)
    """

    steps: Count = 400
    num_samples: Count = 1
    tolerance: Positive = 1e-4
    mean: ProcessRecipe = field(default_factory=ProcessRecipe)
    noise_kernel: RBF = RBF(variance=2.0, log_lengthscale_sd=SD)

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """Return two processes at the same inducing points; the mean has the first of its kernels."""
        kernel = in_diagonals(self.mean.kernels[0], points.shape[-1])
        return self._network(points, points, kernel, targets.shape[-1])

    def likelihood(
        self, outputs: int, classes: int | None = None, replicas: tuple[int, ...] = ()
    ) -> Likelihood:
        """Return Gaussian noise whose variance comes from the network."""
        if classes is not None:
            raise ValueError(
                "a heteroscedastic_gp is for regression, because classes have no noise that could vary: use "
                "'network', 'gp' or 'deep_gp', or 'auto' in an estimator"
            )
        if replicas:
            raise ValueError("this recipe trains one model at a time: give one seed")
        return HeteroscedasticGaussian([self.noise_variance] * outputs)

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """Return 1, because predictions are in closed form."""
        return 1

    def _train(
        self, x: Tensor, y: Tensor, classes: int | None, seed: int | Sequence[int], options: dict[str, Any]
    ) -> Trained:
        """Choose the better of two starts, and train from there on all data with the given options."""
        self.likelihood(y.shape[-1], classes, () if isinstance(seed, int) else (len(seed),))
        assert isinstance(seed, int)
        x, y = check_tensor(x, "x").double(), check_tensor(y, "y").double()
        few = self.mean.compared(x, y, torch.Generator().manual_seed(seed))
        means = (self.mean, replace(self.mean, steps=FEW_STEPS, noise_variance=WIDE))
        found = [self._from(mean, x[few], y[few], seed, {"progress": False}) for mean in means]
        bounds = [float(trained.history.elbo[-1]) for trained in found]
        return self._from(means[bounds.index(max(bounds))], x, y, seed, options)

    def _from(self, mean: ProcessRecipe, x: Tensor, y: Tensor, seed: int, options: dict[str, Any]) -> Trained:
        """Train both processes, starting from the mean's process that a recipe trains."""
        shown = {name: value for name, value in options.items() if name == "progress"}
        start = mean.train(x, y, seed=seed, **shown)
        net, likelihood = self._continued(start, x[self.rows(x, torch.Generator().manual_seed(seed))])
        rule = Collapsed(tolerance=self.tolerance)
        settings: dict[str, Any] = {"steps": self.steps, "rule": rule, "num_samples": 1}
        return Trained(net, likelihood, fit(net, likelihood, x, y, **(settings | options)))

    def _continued(self, start: Trained, points: Tensor) -> tuple[Network, Likelihood]:
        """Return both processes, with kernel, inducing inputs and noise variances taken from `start`."""
        (known,) = start.network.layers
        assert isinstance(known, GP) and known.inducing_inputs is not None
        assert isinstance(start.likelihood, Gaussian | PerOutputGaussian)
        noise = start.likelihood.noise_variance.detach().reshape(-1).tolist()
        net = self._network(known.inducing_inputs.detach(), points, known.kernel, known.out_features)
        (both,) = net.layers
        assert isinstance(both, Concat)
        mean = next(iter(both))
        assert isinstance(mean, GP) and mean.hyperparameters is not None and known.hyperparameters is not None
        mean.hyperparameters.load_state_dict(known.hyperparameters.state_dict())
        return net, HeteroscedasticGaussian(noise).to(points.device)

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
