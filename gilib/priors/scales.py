"""Priors with one scale per layer: fixed, a point estimate, or with a posterior; or one for each replica."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Gamma

from gilib.arguments import Positive, one_of
from gilib.distributions import gamma_from_normal
from gilib.linalg import ScaledIdentity, SymmetricOperator
from gilib.priors.base import Prior, PriorModule
from gilib.sites import Site


@dataclass(frozen=True, repr=False)
class NealPrior(Prior):
    """Variance scale²/I, which keeps the size of activations through depth (Neal, 1996; Eq. 14).

    Args:
        scale: c, prior standard deviation of the weights times √I; 1 in the paper. √2 preserves the size of
            activations under ReLU.
        learn: whether every layer (of every replica) learns its own c, from `scale` on, by maximising the
            bound, which is then on the evidence of the model with this c (empirical Bayes).

    >>> NealPrior(learn=True)
    NealPrior(learn=True)
    """

    scale: Positive = 1.0
    learn: bool = False

    def build(self, site: Site, like: Tensor) -> PriorModule:
        if self.learn:
            return PointScale(self.scale, site.fan_in, like)
        return _FixedScale(site.fan_in / self.scale**2, site.fan_in, like)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """Variance 1 for every weight (Eq. 15): activations grow by √I from layer to layer.

    >>> StandardPrior().well_scaled
    False
    """

    well_scaled: ClassVar[bool] = False

    def build(self, site: Site, like: Tensor) -> PriorModule:
        return _FixedScale(1.0, site.fan_in, like)


@dataclass(frozen=True)
class ScalePrior(Prior):
    """A layer-wide scale with its own prior and posterior (Eqs. 16-18).

        C = Id / s,    P(s) = Gamma(shape, rate),    Q(s) = Gamma(shape + α, rate + β),    α, β ≥ 0 learned.

    Args:
        shape: shape of the Gamma prior; 2 in the paper.
        rate: rate of the Gamma prior; 2 in the paper.
        initial_log_alpha: initial value of log α; 6, as in the reference implementation, almost fixes Q(s) at
            1 when training begins. Start lower for a scale that moves in few steps.
        initial_log_beta: initial value of log β.
        parameterisation: "paper" for a precision I · s, or "reference" for the reference implementation's
            I / √s.

    >>> ScalePrior(parameterisation="reference").parameterisation
    'reference'
    """

    shape: Positive = 2.0
    rate: Positive = 2.0
    initial_log_alpha: float = 6.0
    initial_log_beta: float = 6.0
    parameterisation: Annotated[str, one_of(("paper", "reference"))] = "paper"

    def build(self, site: Site, like: Tensor) -> PriorModule:
        return _LearnedScale(self, site.fan_in, like)


class _FixedScale(PriorModule):
    scale: Tensor

    def __init__(self, scale: float, size: int, like: Tensor):
        super().__init__()
        self.size, self.value = size, scale
        self.register_buffer("scale", like.new_tensor(scale))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Load a state; refuse that of a prior with another scale."""
        saved = state.get(f"{prefix}scale")
        if saved is None or math.isclose(float(saved), self.value, rel_tol=1e-6):  # rounded to float32
            super()._load_from_state_dict(state, prefix, *rest)
        else:
            rest[-1].append(f"{prefix}scale: fixed at {self.value:g} here, {float(saved):g} in the state")

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        return ScaledIdentity(self.scale, self.size), self.scale.new_zeros(())


class PointScale(PriorModule):
    """The precision I / c² with a parameter log c, `log_scale`; there is nothing to draw."""

    def __init__(self, scale: float, size: int, like: Tensor):
        super().__init__()
        self.size = size
        self.log_scale = nn.Parameter(torch.full_like(like, math.log(scale)))  # [R]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        """Return I / c², `[R]` without a sample axis, and zero."""
        precision = self.size * (-2.0 * self.log_scale).exp()
        return ScaledIdentity(precision, self.size), torch.zeros_like(precision)


class _LearnedScale(PriorModule):
    noise_size = 1

    def __init__(self, spec: ScalePrior, size: int, like: Tensor):
        super().__init__()
        self.spec, self.size = spec, size
        self.log_alpha = nn.Parameter(torch.full_like(like, spec.initial_log_alpha))  # [R]
        self.log_beta = nn.Parameter(torch.full_like(like, spec.initial_log_beta))  # [R]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        shape, rate = self.spec.shape + self.log_alpha.exp(), self.spec.rate + self.log_beta.exp()
        scale = gamma_from_normal(shape, noise[..., 0]) / rate  # [S, R]
        known = torch.full_like(scale, self.spec.shape), torch.full_like(scale, self.spec.rate)
        prior = Gamma(known[0], known[1], validate_args=False)
        log_pq = prior.log_prob(scale) - Gamma(shape, rate, validate_args=False).log_prob(scale)
        precision = self.size * scale if self.spec.parameterisation == "paper" else self.size * scale.rsqrt()
        return ScaledIdentity(precision, self.size), log_pq


@dataclass(frozen=True)
class PerReplica(Prior):
    """A separate prior for each replica.

    Args:
        priors: R priors with one scale per layer: `NealPrior`, `StandardPrior` or `ScalePrior`.

    >>> PerReplica((NealPrior(), StandardPrior())).well_scaled
    False
    """

    priors: tuple[Prior, ...]

    def __post_init__(self) -> None:
        for r, prior in enumerate(self.priors):
            if not isinstance(prior, (NealPrior, StandardPrior, ScalePrior)):
                raise TypeError(f"priors[{r}] must have one scale per layer, got {prior!r}")

    @property
    def well_scaled(self) -> bool:  # type: ignore[override]
        """Whether all priors are well scaled."""
        return all(prior.well_scaled for prior in self.priors)

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Build every distinct prior once, and record which replica uses which."""
        if like.shape != (len(self.priors),):
            raise ValueError(
                f"PerReplica holds {len(self.priors)} priors for a network with "
                f"replicas=({len(self.priors)},), this one has replicas={tuple(like.shape)}"
            )
        return _PerReplica(self, site, like)


class _PerReplica(PriorModule):
    choice: Tensor

    def __init__(self, spec: PerReplica, site: Site, like: Tensor):
        super().__init__()
        kinds = list(dict.fromkeys(spec.priors))
        self.members = nn.ModuleList(kind.build(site, like) for kind in kinds)
        self.size = site.fan_in
        self.noise_size = max(member.noise_size for member in self._priors())
        which = torch.tensor([kinds.index(prior) for prior in spec.priors], device=like.device)
        self.register_buffer("choice", which, persistent=False)  # [R]

    def _priors(self) -> list[PriorModule]:
        return [member for member in self.members if isinstance(member, PriorModule)]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        scale = log_pq = noise.new_zeros(noise.shape[:-1])  # [S, R]
        for k, member in enumerate(self._priors()):
            operator, own_log_pq = member.draw(noise[..., : member.noise_size])
            assert isinstance(operator, ScaledIdentity)
            scale = torch.where(self.choice == k, operator.scale, scale)
            log_pq = torch.where(self.choice == k, own_log_pq, log_pq)
        return ScaledIdentity(scale, self.size), log_pq
