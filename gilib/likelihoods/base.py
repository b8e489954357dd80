"""Likelihoods: how outputs of a network explain targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from gilib.config import ConfigDict, Part
from gilib.likelihoods.mixtures import CategoricalPrediction, GaussianPrediction, Prediction
from gilib.validation import check_positive

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn

LOG_2PI = math.log(2.0 * math.pi)


class Likelihood(nn.Module, Part, ABC):
    """P(y | f), independent over points.

    Attributes:
        replicas: shape of the replica axes, if every replica has its own parameters; else `()`.
        integrates: whether it predicts from Gaussian outputs in closed form; else they are sampled.
    """

    replicas: tuple[int, ...] = ()
    integrates: bool = False

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log P(y_n | f_n) of every point, nats.

        Args:
            outputs: f, `[S, R, N, O]`.
            targets: y, `[N, O]` or `[R, N, O]` (class labels: `[N]` or `[R, N]`, integers).

        Returns:
            `[S, R, N]`.
        """

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """E log P(y_n | f_n), `[S, R, N]` nats: over what the functions sample last, if that is known.

        Args:
            functions: S of them.
            x: inputs, `[N, D]` or `[R, N, D]`.
            targets: as for `log_prob`.
        """
        return self.log_prob(functions(x), targets)

    @abstractmethod
    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Raise unless `targets` fit `num_points` points and a network with `outputs` outputs."""

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> Prediction:
        """The mixture over S functions that `predict` returns.

        Args:
            outputs: f, `[S, R, N, O]`.
            normalisation: how targets were scaled for training; the prediction is in original units.
            variance: of Gaussian outputs, whose means are f; handed over if `integrates` is True.

        Raises:
            TypeError: if the likelihood does not say.
        """
        raise TypeError(
            f"{type(self).__name__} does not say what it predicts: define predictive(outputs, normalisation) "
            "to return a gilib.prediction.Prediction"
        )

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        """Whether targets are the outputs plus Gaussian noise, whose covariance `set_noise` takes.

        By default they are not.

        Args:
            replicas: of the network.

        Raises:
            ValueError: if they are, and the noise is fixed, or not one for every replica.
        """
        return False

    def set_noise(self, covariance: Tensor) -> None:
        """Take an inferred covariance of the noise, `[R, O, O]`.

        Raises:
            TypeError: if there is no such noise.
        """
        raise TypeError(f"{type(self).__name__} has no Gaussian noise whose covariance could be set")

    @abstractmethod
    def config(self) -> ConfigDict:
        """The arguments with which the constructor makes it again; what is learned belongs to the state."""


class Gaussian(Likelihood):
    """y ~ N(f, σ²), the same noise variance for all outputs.

    Args:
        noise_variance: σ², in the squared units of the targets; the starting value if learned: about 0.1 for
            normalised targets. A much smaller start asks for a fit before there are functions to fit with.
        learn: whether σ² is learned, as a point estimate. True unless the noise is known.
        scale: the stored parameter is log σ² / scale; 10 in the paper's UCI experiments (Ober & Aitchison,
            2021, App. K.1).
        replicas: shape of the replica axes, if every replica has its own noise.

    The parameter is kept in float64, so that a given σ² is exact whatever the dtype of the network.

    >>> likelihood = Gaussian(noise_variance=0.25)
    >>> likelihood.log_prob(torch.zeros(3, 2, 1), torch.zeros(2, 1)).shape
    torch.Size([3, 2])
    """

    integrates = True

    def __init__(
        self,
        noise_variance: float = 1.0,
        learn: bool = False,
        scale: float = 1.0,
        replicas: tuple[int, ...] = (),
    ):
        """Start from a noise variance."""
        super().__init__()
        check_positive(noise_variance, "noise_variance")
        check_positive(scale, "scale")
        self.learn, self.scale, self.replicas = learn, scale, tuple(replicas)
        start = torch.full(self.replicas, math.log(noise_variance) / scale, dtype=torch.float64)
        self.scaled_log_variance = nn.Parameter(start, requires_grad=learn)

    @property
    def log_variance(self) -> Tensor:
        """Log σ², `[R]`."""
        return self.scale * self.scaled_log_variance

    @property
    def noise_variance(self) -> Tensor:
        """σ², `[R]`, in squared units of the targets."""
        return self.log_variance.exp()

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Σ_o log N(y_no; f_no, σ²), `[S, R, N]` nats."""
        self._check_replicas(outputs)
        self._check_shape(targets, *outputs.shape[-2:])
        log_variance = self.log_variance.to(outputs.dtype)[..., None]
        squares = (outputs - targets).square().sum(-1)
        return -0.5 * (squares * (-log_variance).exp() + outputs.shape[-1] * (log_variance + LOG_2PI))

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Σ_o log N(y_no; E f_no, σ²) - ½ V f_no / σ², `[S, R, N]` nats (Hensman et al., 2013)."""
        mean, variance = functions.moments(x)
        log_prob = self.log_prob(mean, targets)
        if variance is None:
            return log_prob
        precision = (-self.log_variance).exp().to(mean.dtype)[..., None]
        return log_prob - 0.5 * precision * variance.sum(-1)

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Targets must be `[N, O]`, floating point."""
        if not targets.is_floating_point():
            raise TypeError(
                f"targets must be floating-point numbers, got {targets.dtype}: convert with y.to(x.dtype)"
            )
        self._check_shape(targets, num_points, outputs)

    def _check_shape(self, targets: Tensor, num_points: int, outputs: int) -> None:
        if tuple(targets.shape[-2:]) != (num_points, outputs):
            raise ValueError(
                f"targets must have shape [{num_points}, {outputs}] (points, outputs of the network), "
                f"got {list(targets.shape)}"
            )

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> GaussianPrediction:
        """Gaussians around the outputs, with the standard deviation σ of every replica and theirs."""
        self._check_replicas(outputs)
        noise = self.noise_variance.to(outputs)[..., None, None]
        noise = noise.expand(1, *outputs.shape[1:-2], 1, outputs.shape[-1])  # [1, R, 1, O]
        sd = noise.sqrt() if variance is None else (noise + variance).sqrt()
        if normalisation is None:
            return GaussianPrediction(outputs, sd)
        return GaussianPrediction(normalisation.invert_y(outputs), normalisation.scale_y(sd))

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        """Targets are outputs plus noise, and σ² must be learned, for every replica by itself."""
        if not self.learn:
            raise ValueError(
                "the noise is inferred here, and this likelihood has it fixed: use Gaussian(learn=True)"
            )
        if self.replicas != replicas:
            raise ValueError(
                f"the noise is inferred for every replica: use Gaussian(learn=True, replicas={replicas}), "
                f"got replicas={self.replicas}"
            )
        return True

    @torch.no_grad()
    def set_noise(self, covariance: Tensor) -> None:
        """σ² = tr Σ / O: of all N(f, σ² Id) the nearest to N(f, Σ), in KL(N(f, Σ)‖N(f, σ² Id))."""
        variance = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).to(self.scaled_log_variance)
        self.scaled_log_variance.copy_(variance.log() / self.scale)

    def _check_replicas(self, outputs: Tensor) -> None:
        given = tuple(outputs.shape[1:-2])
        if self.replicas not in ((), given):
            raise ValueError(
                f"Gaussian(replicas={self.replicas}) has a noise for each of these, the outputs are of a "
                f"network with replicas={given}: give both the same"
            )

    def config(self) -> ConfigDict:
        """Settings; the noise itself is part of the state."""
        return {"learn": self.learn, "scale": self.scale, "replicas": list(self.log_variance.shape)}


class Categorical(Likelihood):
    """y ~ Categorical(softmax(f)).

    >>> Categorical().log_prob(torch.zeros(3, 2, 4), torch.tensor([0, 1]))[0]
    tensor([-1.3863, -1.3863])
    """

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log softmax(f)_y, `[S, R, N]` nats."""
        self._check_shape(targets, outputs.shape[-2])
        index = targets.expand(outputs.shape[:-1])[..., None]
        return log_softmax(outputs, -1).gather(-1, index)[..., 0]

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Labels must be integers `[N]` below the number of outputs."""
        if targets.is_floating_point() or targets.is_complex():
            raise TypeError(f"class labels must be integers, got {targets.dtype}: convert with y.long()")
        self._check_shape(targets, num_points)
        if int(targets.min()) < 0 or int(targets.max()) >= outputs:
            raise ValueError(
                f"class labels must lie in 0 ... {outputs - 1} (the network has {outputs} outputs), "
                f"got {int(targets.min())} ... {int(targets.max())}"
            )

    def _check_shape(self, targets: Tensor, num_points: int) -> None:
        if targets.shape[-1:] != (num_points,):
            raise ValueError(f"class labels must have shape [{num_points}], got {list(targets.shape)}")

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> CategoricalPrediction:
        """Class probabilities; labels have no units."""
        return CategoricalPrediction(log_softmax(outputs, -1))

    def config(self) -> ConfigDict:
        """No settings."""
        return {}
