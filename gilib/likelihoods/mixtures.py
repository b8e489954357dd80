"""Predictive distributions in the units of the data: equal mixtures over draws, and of predictions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent
from torch.distributions.constraints import Constraint

from gilib.likelihoods import quantiles
from gilib.metrics import entropy, log_mean_exp
from gilib.validation import as_labels, as_tensor, check_own_targets

if TYPE_CHECKING:
    from gilib.data import Normalisation


def as_targets(value: object, like: Tensor, shape: Sequence[int], axes: int = 2) -> Tensor:
    """Return targets `[N, O]` or `[R, N, O]` as a tensor like `like`, or raise an error if they do not fit.

    `shape` is that of the prediction's mean; its last `axes` axes are not replicas.
    """
    targets = as_tensor(value, "targets", like)
    if targets.shape[-axes:] != shape[-axes:]:
        wanted = list(shape[-axes:])
        raise ValueError(f"targets must have shape {wanted} (points, outputs), got {list(targets.shape)}")
    check_own_targets(targets.shape[:-axes], shape[:-axes])
    return targets


@dataclass(frozen=True, repr=False)
class Prediction(ABC):
    """An equal mixture of S components at every point; a dataclass of tensors `[S, R, N, ...]`.

    A new likelihood has one already, `MixturePrediction`; another kind defines `mean` and `log_prob`.
    """

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""

    @abstractmethod
    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log density, or log probability, of all outputs of every point jointly, `[R, N]`, nats.

        Args:
            targets: `[N, O]` or `[R, N, O]`, class labels `[N]` or `[R, N]`; in the units of the data.

        Raises:
            ValueError: if the targets have another shape than the mean.
        """

    def __repr__(self) -> str:
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
        component_sd: their standard deviations, noise included, broadcastable with `means`.
    """

    means: Tensor
    component_sd: Tensor

    def __post_init__(self) -> None:
        given, wanted = self.component_sd.shape, self.means.shape
        pairs = zip(reversed(given), reversed(wanted), strict=False)
        if len(given) > len(wanted) or any(own not in (1, size) for own, size in pairs):
            raise ValueError(f"component_sd must be broadcastable to means {list(wanted)}, got {list(given)}")

    @property
    def mean(self) -> Tensor:
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

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function of every output's mixture at `values`, both `[R, N, O]`."""
        return quantiles.mixture_cdf(self.means, self.component_sd, values, quantiles.StandardNormal())

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`."""
        return quantiles.mixture_quantile(
            self.means, self.component_sd, probability, quantiles.StandardNormal()
        )

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return log (1/S) Σ_s Π_o N(y_no; m_sno, σ²_sno), `[R, N]`, nats; NaN where means are NaN."""
        targets = as_targets(targets, self.means, self.means.shape[1:])
        sd = self.component_sd.expand_as(self.means)
        density = torch.distributions.Normal(self.means, sd, validate_args=False)  # failed replicas have NaN
        return log_mean_exp(density.log_prob(targets).sum(-1), 0)


def in_units(locations: Tensor, root: Tensor, normalisation: Normalisation) -> tuple[Tensor, Tensor]:
    """Return locations `[S, R, N, O]` and a root of covariances `[1, R, O, O]` in original units, float64."""
    scale = normalisation.scale_y(torch.ones_like(root[..., :1, :], dtype=torch.float64))  # [1, R, 1, O]
    return normalisation.invert_y(locations.double()), scale.mT * root.double()


def gaussian_log_prob(deviation: Tensor, root: Tensor) -> Tensor:
    """Return log N(d; 0, C Cᵀ), `[..., N]` nats, for deviations d `[..., N, O]` and lower C `[..., O, O]`."""
    white = torch.linalg.solve_triangular(root.mT, deviation, upper=True, left=False)
    log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]
    return -0.5 * (white.square().sum(-1) + deviation.shape[-1] * math.log(2.0 * math.pi)) - log_det


@dataclass(frozen=True, repr=False)
class CorrelatedPrediction(GaussianPrediction):
    """An equal mixture of S Gaussians at every point, whose noise is correlated between outputs.

    Means, standard deviations and quantiles are of single outputs; `log_prob` is joint over outputs.

    Attributes:
        noise_tril: Cholesky factor of the noise covariance, `[S or 1, R, O, O]`, in the units of the data.
    """

    noise_tril: Tensor

    def stretched(self, factor: Tensor) -> Self:
        wider = super().stretched(factor)
        return replace(wider, noise_tril=factor.to(self.noise_tril)[:, None] * self.noise_tril)

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return log (1/S) Σ_s N(y_n; m_sn, Σ) for every point, `[R, N]`, nats."""
        targets = as_targets(targets, self.means, self.means.shape[1:])
        return log_mean_exp(gaussian_log_prob(targets - self.means, self.noise_tril), 0)


@dataclass(frozen=True, repr=False)
class StudentPrediction(Prediction):
    """An equal mixture of S multivariate Student t distributions at every point, t_df(m_sn, r_sn² L Lᵀ).

    Attributes:
        locations: m, `[S, R, N, O]`, in the units of the data.
        spreads: r, `[S, R, N, 1]`.
        scale_tril: L, `[1, R, O, O]`, in the units of the data.
        df: degrees of freedom, `[1, R]`, float64.
    """

    locations: Tensor
    spreads: Tensor
    scale_tril: Tensor
    df: Tensor

    @property
    def mean(self) -> Tensor:
        return self.locations.mean(0)

    @property
    def component_scale(self) -> Tensor:
        """Scale of every output's t distribution, `[S, R, N, O]`."""
        return self.spreads * self.scale_tril.square().sum(-1).sqrt()[..., None, :]

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, `[R, N, O]`; infinite for df ≤ 2, NaN for df ≤ 1."""
        inflated = torch.where(self.df > 2.0, self.df / (self.df - 2.0), torch.inf)
        inflated = inflated.masked_fill(self.df <= 1.0, torch.nan)
        own = self.component_scale.square() * inflated[..., None, None].to(self.locations)
        return (own.mean(0) + self.locations.var(0, correction=0)).sqrt()

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the joint log density of points, `[R, N]`, nats, from float64: in float32 log Γ cancels."""
        targets = as_targets(targets, self.locations, self.locations.shape[1:])
        size, df, root = targets.shape[-1], self.df[..., None], self.scale_tril.double()
        white = torch.linalg.solve_triangular(
            root.mT, targets.double() - self.locations.double(), upper=True, left=False
        )
        square = white.square().sum(-1) / self.spreads[..., 0].double().square()
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]
        constant = (
            torch.lgamma(0.5 * (df + size)) - torch.lgamma(0.5 * df) - 0.5 * size * (df * math.pi).log()
        )
        density = constant - log_det - size * self.spreads[..., 0].double().log()
        density = density - 0.5 * (df + size) * torch.log1p(square / df)
        return log_mean_exp(density, 0).to(self.locations.dtype)

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function of every output's mixture at `values`, both `[R, N, O]`."""
        return quantiles.mixture_cdf(self.locations, self.component_scale, values, self._standard)

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`."""
        return quantiles.mixture_quantile(self.locations, self.component_scale, probability, self._standard)

    @property
    def _standard(self) -> quantiles.StandardStudent:
        return quantiles.StandardStudent(self.df[..., None, None])


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

    def __post_init__(self) -> None:
        quantiles.check_defined(self._single, "mean", "variance")

    @property
    def mean(self) -> Tensor:
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

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function of every output's mixture at `values`, both `[R, N, O]`."""
        quantiles.check_defined(self._single, "cdf")
        values = values.double() if self.normalisation is None else self.normalisation.y(values.double())
        support: Any = self._single.support
        low, high = getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf)
        found = self._components(self._single.cdf(values.clamp(low, high))).mean(0)
        return found.masked_fill(values < low, 0.0).masked_fill(values > high, 1.0)

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`, for counts a whole number."""
        return self._in_units(quantiles.quantile_of_components(self._single, probability, 1 + self.members))

    @property
    def _single(self) -> Distribution:
        found = self.distribution
        while isinstance(found, Independent):
            found = found.base_dist
        return found

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log density or probability of every target, `[R, N]`, nats; -∞ outside the support."""
        each = self.distribution
        shape = each.batch_shape[1 + self.members :] + each.event_shape
        targets = as_targets(targets, each.mean, shape, 1 + len(each.event_shape)).double()
        units, support = self.normalisation, cast(Constraint, each.support)
        values = targets if units is None else units.y(targets)
        found = log_mean_exp(self._components(each.log_prob(values)), 0)
        found = found.masked_fill(~support.check(values), -torch.inf)
        return found if units is None else found + units.log_density_shift

    def pooled(self, axes: int) -> Self:
        return replace(self, members=axes)

    def __repr__(self) -> str:
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
            raise ValueError(f"labels must have shape [{averaged.shape[-2]}], got {list(targets.shape)}")
        check_own_targets(targets.shape[:-1], averaged.shape[:-2], "class labels")
        return averaged.gather(-1, targets.expand(averaged.shape[:-1])[..., None])[..., 0]


@dataclass(frozen=True, repr=False)
class EnsemblePrediction(Prediction):
    """An equal mixture of predictions of any kind, for the same points; in float64.

    Args:
        members: the predictions. One of another package needs a tensor `mean` `[R, N, O]` and a method
            `log_prob(targets)` `[R, N]`, joint over outputs. For `sd`, `cdf(values)` and, with both,
            `quantile(probability)` of the ensemble, every member must have the same, `[R, N, O]`.

    Raises:
        TypeError: if a member is no prediction.
        ValueError: if there are no members, or if they predict other points or outputs.

    >>> one, two = (GaussianPrediction(torch.full((1, 3, 1), at), torch.ones(())) for at in (0.0, 4.0))
    >>> EnsemblePrediction([one, two]).mean[0]
    tensor([2.], dtype=torch.float64)
    """

    members: Sequence[Any]

    def __post_init__(self) -> None:
        for k, member in enumerate(self.members):
            if not (isinstance(getattr(member, "mean", None), Tensor) and hasattr(member, "log_prob")):
                raise TypeError(
                    f"members[{k}] must be a prediction, with a tensor `mean` and a method `log_prob`, got "
                    f"{type(member).__name__}: gilib.predict makes one of what draws functions"
                )
        shapes = [list(member.mean.shape) for member in self.members]
        if not shapes or any(shape != shapes[0] for shape in shapes):
            raise ValueError(f"members must predict the same points and outputs, got means of {shapes}")

    @property
    def mean(self) -> Tensor:
        return self._stacked([member.mean for member in self.members]).mean(0)

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, `[R, N, O]`."""
        means = self._stacked([member.mean for member in self.members])
        own = self._stacked([member.sd for member in self.members])
        return (own.square().mean(0) + means.var(0, correction=0)).sqrt()

    def cdf(self, values: Tensor) -> Tensor:
        """Return the distribution function of every output's mixture at `values`, both `[R, N, O]`."""
        return self._stacked([member.cdf(values) for member in self.members]).mean(0)

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`, between those of the members."""
        quantiles.check_probability(probability)
        ends = self._stacked([member.quantile(probability) for member in self.members])
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(quantiles.LOOKS):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < probability
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return torch.where(self.cdf(low) < probability, high, low)  # a count may be at the end

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the log of the members' mean density or probability of every target, `[R, N]`, nats."""
        targets = as_tensor(targets, "targets", self.members[0].mean)
        found = [member.log_prob(targets) for member in self.members]
        wanted = self.members[0].mean.shape[:-1]
        for member, values in zip(self.members, found, strict=True):
            if values.shape != wanted:
                raise ValueError(
                    f"log_prob of a member must be joint over outputs, {list(wanted)}, but "
                    f"{type(member).__name__} gave {list(values.shape)}"
                )
        return log_mean_exp(self._stacked(found), 0)

    def pooled(self, axes: int) -> Self:
        return replace(self, members=[member.pooled(axes) for member in self.members])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.members)} members, mean {list(self.members[0].mean.shape)})"

    @staticmethod
    def _stacked(values: Sequence[Tensor]) -> Tensor:
        return torch.stack([value.double() for value in values])
