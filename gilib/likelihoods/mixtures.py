"""Predictive distributions: equal mixtures over drawn functions, in the units of the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Self, cast

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.distributions.constraints import Constraint

from gilib.likelihoods.quantiles import StandardNormal, mixture_quantile, quantile_of_components
from gilib.metrics import entropy, log_mean_exp
from gilib.validation import as_labels, as_tensor, check_own_targets

if TYPE_CHECKING:
    from gilib.data import Normalisation


@dataclass(frozen=True, repr=False)
class Prediction(ABC):
    """An equal mixture of S components at every point; a dataclass of tensors `[S, R, N, ...]`.

    A prediction for a new likelihood must define `mean` and `log_prob`.
    """

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""

    @abstractmethod
    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log density or log probability of the target of every point, `[R, N]`, nats."""

    def __repr__(self) -> str:
        """Show the shape of the components, not their numbers."""
        first = getattr(self, fields(self)[0].name)
        return f"{type(self).__name__}({first.shape[0]} components, mean {list(first.shape[1:])})"

    def pooled(self, axes: int) -> Self:
        """Return the mixture over samples and the next `axes` axes, `[S, K, R, ...]` to `[S K, R, ...]`."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        lead = torch.broadcast_shapes(*(value.shape[: axes + 1] for value in values.values()))
        return replace(
            self,
            **{
                name: value.expand(*lead, *value.shape[axes + 1 :]).flatten(0, axes)
                for name, value in values.items()
            },
        )


@dataclass(frozen=True, repr=False)
class GaussianPrediction(Prediction):
    """An equal mixture of S Gaussians at every point and output.

    Attributes:
        means: means of the components, `[S, R, N, O]`, in the units of the data.
        component_sd: their standard deviations, noise included, broadcastable with `means`. Components may
            differ between samples, replicas, points and outputs.
    """

    means: Tensor
    component_sd: Tensor

    def __post_init__(self) -> None:
        """Raise ValueError unless the standard deviations broadcast with the means."""
        given, wanted = self.component_sd.shape, self.means.shape
        pairs = zip(reversed(given), reversed(wanted), strict=False)
        if len(given) > len(wanted) or any(own not in (1, size) for own, size in pairs):
            raise ValueError(f"component_sd must be broadcastable to means {list(wanted)}, got {list(given)}")

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""
        return self.means.mean(0)

    @property
    def function_sd(self) -> Tensor:
        """Standard deviation of the components' means, `[R, N, O]`."""
        return self.means.std(0, correction=0)

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, noise included, `[R, N, O]`."""
        return (
            self.component_sd.square().expand_as(self.means).mean(0) + self.means.var(0, correction=0)
        ).sqrt()

    def stretched(self, factor: Tensor) -> Self:
        """Stretched around the mean of the mixture by a positive factor for every output, `[O]`."""
        means = torch.lerp(self.mean, self.means, factor.to(self.means))
        return replace(self, means=means, component_sd=factor.to(self.means) * self.component_sd)

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`."""
        return mixture_quantile(self.means, self.component_sd, probability, StandardNormal())

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return log (1/S) Σ_s Π_o N(y_no; m_sno, σ²_sno) for every point, `[R, N]`, nats, units of the data.

        It is NaN for a replica whose means are NaN because a factorisation failed.

        Raises:
            ValueError: if the targets have another shape than the means.
        """
        targets = as_tensor(targets, "targets", self.means)
        if targets.shape[-2:] != self.means.shape[-2:]:
            wanted = list(self.means.shape[-2:])
            raise ValueError(f"targets must have shape {wanted} (points, outputs), got {list(targets.shape)}")
        check_own_targets(targets.shape[:-2], self.means.shape[1:-2])
        sd = self.component_sd.expand_as(self.means)
        density = torch.distributions.Normal(self.means, sd, validate_args=False)  # failed replicas have NaN
        return log_mean_exp(density.log_prob(targets).sum(-1), 0)


@dataclass(frozen=True, repr=False)
class MixturePrediction(Prediction):
    """An equal mixture of the distributions that a likelihood gives to targets, in float64.

    Attributes:
        distribution: the components, in the units of training: batch shape `[S, R, N]`, event shape `[O]`.
        normalisation: how targets were scaled for training; None: not at all.
        members: number of axes after the first that hold components, too.
    """

    distribution: Distribution
    normalisation: Normalisation | None = None
    members: int = 0

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""
        return self._in_units(self._components(self.distribution.mean).mean(0))

    @property
    def function_sd(self) -> Tensor:
        """Standard deviation of the components' means, `[R, N, O]`."""
        return self._scaled(self._components(self.distribution.mean).std(0, correction=0))

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, noise included, `[R, N, O]`."""
        means, noise = self._components(self.distribution.mean), self._components(self.distribution.variance)
        return self._scaled((noise.mean(0) + means.var(0, correction=0)).sqrt())

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`, for counts a whole number."""
        single = getattr(self.distribution, "base_dist", self.distribution)
        return self._in_units(quantile_of_components(single, probability, 1 + self.members))

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log density or log probability of every target, `[R, N]`, nats; -∞ outside the support.

        Raises:
            ValueError: if the targets have another shape than the components.
        """
        each = self.distribution
        shape = each.batch_shape[1 + self.members :] + each.event_shape
        targets, axes = as_tensor(targets, "targets", each.mean).double(), 1 + len(each.event_shape)
        if targets.shape[-axes:] != shape[-axes:]:
            wanted = list(shape[-axes:])
            raise ValueError(f"targets must have shape {wanted} (points, outputs), got {list(targets.shape)}")
        check_own_targets(targets.shape[:-axes], shape[:-axes])
        units, support = self.normalisation, cast(Constraint, each.support)
        values = targets if units is None else units.y(targets)
        found = log_mean_exp(self._components(each.log_prob(values)), 0)
        found = found.masked_fill(~support.check(values), -torch.inf)
        return found if units is None else found + units.log_density_shift

    def pooled(self, axes: int) -> Self:
        """Return the mixture over samples and the `axes` axes after them."""
        return replace(self, members=axes)

    def __repr__(self) -> str:
        """Show the shape of the components, not their numbers."""
        shape = self._components(self.distribution.mean).shape
        return f"{type(self).__name__}({shape[0]} components, mean {list(shape[1:])})"

    def _components(self, values: Tensor) -> Tensor:
        return values.flatten(0, self.members)

    def _in_units(self, values: Tensor) -> Tensor:
        return values if self.normalisation is None else self.normalisation.invert_y(values)

    def _scaled(self, sd: Tensor) -> Tensor:
        return sd if self.normalisation is None else self.normalisation.scale_y(sd)


@dataclass(frozen=True, repr=False)
class CategoricalPrediction(Prediction):
    """Class probabilities, averaged over S draws.

    Attributes:
        log_probabilities: logarithms of every draw's probabilities, `[S, R, N, O]`.
    """

    log_probabilities: Tensor

    @property
    def mean(self) -> Tensor:
        """Averaged probabilities, `[R, N, O]`."""
        return log_mean_exp(self.log_probabilities, 0).exp()

    @property
    def classes(self) -> Tensor:
        """The most probable class of every point, `[R, N]`, integers."""
        return self.log_probabilities.logsumexp(0).argmax(-1)

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged probabilities, `[R, N]`, nats; large where the prediction is unsure."""
        return entropy(self.mean)

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log of each label's averaged probability, `[R, N]`, nats, for labels `[N]` or `[R, N]`.

        Raises:
            ValueError: if there is not one label for each point.
        """
        averaged = log_mean_exp(self.log_probabilities, 0)
        targets = as_labels(as_tensor(targets, "labels", averaged), averaged.shape[-1])
        if targets.shape[-1:] != averaged.shape[-2:-1]:
            raise ValueError(
                f"class labels must have shape [{averaged.shape[-2]}], got {list(targets.shape)}"
            )
        check_own_targets(targets.shape[:-1], averaged.shape[:-2], "class labels")
        return averaged.gather(-1, targets.expand(averaged.shape[:-1])[..., None])[..., 0]
