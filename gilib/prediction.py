"""Predictions: mixtures over drawn functions, in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.special import ndtr

from gilib.likelihoods import Categorical, Gaussian, Likelihood
from gilib.metrics import log_mean_exp
from gilib.network import Network
from gilib.randomness import Source
from gilib.validation import count, instance_of_tensor, tensor

if TYPE_CHECKING:
    from gilib.data import Normalisation

BISECTIONS = 60  # halvings of the bracket of a quantile: exhausts float64


@dataclass(frozen=True)
class GaussianPrediction:
    """An equal mixture of S Gaussians at every point and output.

    Attributes:
        means: `[S, R, N, O]`, in the units of the data.
        noise_sd: standard deviation of the noise, broadcastable to `means`.
    """

    means: Tensor
    noise_sd: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""
        return self.means.mean(0)

    @property
    def function_sd(self) -> Tensor:
        """Standard deviation of the drawn functions, noise left out, `[R, N, O]`."""
        return self.means.std(0, correction=0)

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, noise included, `[R, N, O]`."""
        return (self.noise_sd.square().mean(0) + self.means.var(0, correction=0)).sqrt()

    def quantile(self, probability: float) -> Tensor:
        """The quantile of every output's mixture, `[R, N, O]`, by bisection of its distribution function."""
        if not 0.0 < probability < 1.0:
            raise ValueError(f"a quantile needs a probability between 0 and 1, got {probability!r}")
        normal = torch.distributions.Normal(self.means.new_zeros(()), 1.0)
        components = self.means + self.noise_sd * normal.icdf(self.means.new_tensor(probability))
        low, high = components.amin(0), components.amax(0)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            below = ndtr((middle - self.means) / self.noise_sd).mean(0) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)

    def log_prob(self, targets: Tensor) -> Tensor:
        """Log (1/S) Σ_s Π_o N(y_no; f_sno, σ²) of every point, `[R, N]` nats, in the units of the data."""
        if targets.shape[-2:] != self.means.shape[-2:]:
            wanted = list(self.means.shape[-2:])
            raise ValueError(f"targets must have shape {wanted} (points, outputs), got {list(targets.shape)}")
        density = torch.distributions.Normal(self.means, self.noise_sd.expand_as(self.means))
        return log_mean_exp(density.log_prob(targets).sum(-1), 0)


@dataclass(frozen=True)
class CategoricalPrediction:
    """Class probabilities averaged over S draws.

    Attributes:
        log_probabilities: of every draw, `[S, R, N, O]`.
    """

    log_probabilities: Tensor

    @property
    def mean(self) -> Tensor:
        """Averaged probabilities, `[R, N, O]`."""
        return log_mean_exp(self.log_probabilities, 0).exp()

    def log_prob(self, targets: Tensor) -> Tensor:
        """Log of the averaged probability of each label `[N]`; `[R, N]` nats."""
        averaged = log_mean_exp(self.log_probabilities, 0)
        if targets.shape[-1:] != averaged.shape[-2:-1]:
            raise ValueError(
                f"class labels must have shape [{averaged.shape[-2]}], got {list(targets.shape)}"
            )
        return averaged.gather(-1, targets.expand(averaged.shape[:-1])[..., None])[..., 0]


Prediction = GaussianPrediction | CategoricalPrediction


@torch.no_grad()
def predict(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    num_samples: int = 100,
    *,
    normalisation: Normalisation | None = None,
    batch_size: int | None = None,
    generator: Source | None = None,
) -> Prediction:
    """Predict with S functions, drawn once and evaluated everywhere.

    Args:
        net: the network.
        likelihood: `Gaussian` or `Categorical`.
        x: inputs, `[N, D]`; in original units if a normalisation is given.
        num_samples: S.
        normalisation: how inputs and targets were scaled for training; predictions are returned in original
            units.
        batch_size: points evaluated at a time; None: all.
        generator: source of the draws.

    Returns:
        A `GaussianPrediction` (mean, sd, quantile, log_prob) or a `CategoricalPrediction` (mean, log_prob).

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.Factorised())
    >>> gilib.predict(net, gilib.Gaussian(0.1), torch.zeros(3, 1)).mean.shape
    torch.Size([3, 1])
    """
    like = net.layers.like()
    x = instance_of_tensor(x, "x")
    like = x if like is None else like
    if normalisation is not None:
        x = normalisation.x(tensor(x, "x")).to(like)
    tensor(x, "x", like)
    if tuple(x.shape[-len(net.input_shape) :]) != net.input_shape:
        raise ValueError(f"x must hold points of shape {list(net.input_shape)}, got {list(x.shape)}")
    draw = net.draw(num_samples, generator=generator)
    points = -1 - len(net.input_shape)
    if batch_size is not None:
        count(batch_size, "batch_size")
    batches = x.split(int(batch_size or x.shape[points]), dim=points)
    outputs = torch.cat([draw(batch) for batch in batches], dim=-2)
    if isinstance(likelihood, Categorical):
        return CategoricalPrediction(outputs.log_softmax(-1))
    if not isinstance(likelihood, Gaussian):
        raise TypeError(
            f"predict knows the likelihoods Gaussian and Categorical, got {type(likelihood).__name__}"
        )
    noise_sd = likelihood.noise_variance.sqrt().to(outputs)[..., None, None].expand(1, *outputs.shape[1:])
    if normalisation is None:
        return GaussianPrediction(outputs, noise_sd)
    return GaussianPrediction(normalisation.invert_y(outputs), normalisation.scale_y(noise_sd))
