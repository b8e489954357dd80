"""Priors over the weights of a layer: every column of W is N(0, C/I), I the fan-in.

Ober & Aitchison (2021), Sec. 2.3.

A prior is a frozen specification; the layer builds a module from it that holds the variational parameters of
the prior's own hyper-parameters, if it has any, and draws the prior PRECISION I C⁻¹ as a structured operator.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Gamma

from gilib.config import Specification
from gilib.distributions import InverseWishart, gamma_from_normal
from gilib.linalg import KroneckerIdentity, ScaledIdentity, SymmetricOperator
from gilib.sites import Site
from gilib.validation import choice, positive


class PriorModule(nn.Module, ABC):
    """A prior inside a layer.

    Attributes:
        noise_size: how many standard normals a draw of the hyper-parameters takes.
    """

    noise_size: int = 0

    @abstractmethod
    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        """The precision of the weights and log P - log Q of the hyper-parameters.

        Args:
            noise: standard normals, `[S, R, noise_size]`.

        Returns:
            An operator `[S, R, I, I]` (or without leading axes when nothing is drawn) and `[S, R]` nats (or a
            zero).
        """


@dataclass(frozen=True)
class Prior(Specification, ABC):
    """A specification of a prior.

    Attributes:
        well_scaled: whether float32 factorisations suffice. Under StandardPrior features grow from layer to
            layer and condition numbers reach 1e10, so `factor_dtype="auto"` factorises in float64 there.
    """

    well_scaled: ClassVar[bool] = True

    @abstractmethod
    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Build the module for the unknowns of a site, I = channels · kernel_pixels.

        Args:
            site: what the prior is over.
            like: an empty tensor `[R]` whose shape, dtype and device new parameters take.
        """


@dataclass(frozen=True)
class NealPrior(Prior):
    """Variance scale²/I, which keeps the size of activations through depth (Neal, 1996; Eq. 14).

    Args:
        scale: prior standard deviation of the weights times √I; 1 in the paper.

    >>> NealPrior(scale=2.0)
    NealPrior(scale=2.0)
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        positive(self.scale, "scale")

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """A fixed precision I / scale²."""
        return _FixedScale(site.fan_in / self.scale**2, site.fan_in, like)


@dataclass(frozen=True)
class StandardPrior(Prior):
    """Variance 1 for every weight (Eq. 15): activations grow by √I from layer to layer.

    >>> StandardPrior().well_scaled
    False
    """

    well_scaled: ClassVar[bool] = False

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """A fixed precision 1."""
        return _FixedScale(1.0, site.fan_in, like)


@dataclass(frozen=True)
class ScalePrior(Prior):
    """A layer-wide scale with its own prior and posterior (Eqs. 16-18).

        C = Id / s,    P(s) = Gamma(shape, rate),    Q(s) = Gamma(shape + α, rate + β),    α, β ≥ 0 learned.

    Args:
        shape: of the prior Gamma; 2 in the paper.
        rate: of the prior Gamma; 2 in the paper.
        initial_log_alpha: where log α starts. The paper states no start; 6, the reference implementation's,
            all but fixes Q(s) at 1 when training begins.
        initial_log_beta: where log β starts.
        parameterisation: "paper", precision I · s; or "reference", the reference implementation's I / √s.

    >>> ScalePrior(parameterisation="reference").parameterisation
    'reference'
    """

    shape: float = 2.0
    rate: float = 2.0
    initial_log_alpha: float = 6.0
    initial_log_beta: float = 6.0
    parameterisation: str = "paper"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        positive(self.shape, "shape")
        positive(self.rate, "rate")
        choice(self.parameterisation, ("paper", "reference"), "parameterisation")

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """A learned posterior over s."""
        return _LearnedScale(self, site.fan_in, like)


@dataclass(frozen=True)
class SpatialIWPrior(Prior):
    """Correlated weights within a convolution's kernel (Eq. 19).

        C = Id_channels ⊗ Ω⁻¹,    P(Ω) = IW((K+1) Id, K+1),    Q(Ω) = IW((K+1) Id + Ψ, K+1+ν).

    The paper prints N_{l-1}+1 where K+1 stands here; read as the size of Ω, Ω⁻¹ has mean Id. Ψ = ν L Lᵀ with
    L lower triangular, starting from Id. For a dense layer K = 1 and Ω is one scale.

    Args:
        scaling: "paper": precision I · (Id ⊗ Ω), I = channels · K, and Ψ_0 = (K+1) Id; "reference": the
            reference implementation's channels · (Id ⊗ Ω) and Ψ_0 = K Id, a prior variance about K times
            larger.
        initial_log_nu: where log ν starts (stated nowhere; our choice).

    >>> SpatialIWPrior(scaling="reference").scaling
    'reference'
    """

    scaling: str = "paper"
    initial_log_nu: float = 2.0

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        choice(self.scaling, ("paper", "reference"), "scaling")

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """A learned posterior over Ω."""
        return _LearnedSpatial(self, site.channels, site.kernel_pixels, like)


@dataclass(frozen=True)
class PerReplica(Prior):
    """A prior for each replica, so that networks with different priors train in one program.

    Args:
        priors: R of them, each with one scale per layer: `NealPrior`, `StandardPrior`, `ScalePrior`.

    >>> PerReplica((NealPrior(), StandardPrior())).well_scaled
    False
    """

    priors: tuple[Prior, ...]

    def __post_init__(self) -> None:
        """Refuse priors that do not have one scale per layer."""
        for r, prior in enumerate(self.priors):
            if not isinstance(prior, (NealPrior, StandardPrior, ScalePrior)):
                raise TypeError(f"priors[{r}] must have one scale per layer, got {prior!r}")

    @property
    def well_scaled(self) -> bool:  # type: ignore[override]
        """Whether all of them are."""
        return all(prior.well_scaled for prior in self.priors)

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Every distinct prior once, and which replica has which."""
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


class _FixedScale(PriorModule):
    scale: Tensor

    def __init__(self, scale: float, size: int, like: Tensor):
        super().__init__()
        self.size, self.value = size, scale
        self.register_buffer("scale", like.new_tensor(scale))

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Refuse the state of another prior; a state from before it was kept has none."""
        saved = state.get(f"{prefix}scale")
        if saved is None:
            return
        if math.isclose(float(saved), self.value, rel_tol=1e-6):  # it may have been rounded to float32
            super()._load_from_state_dict(state, prefix, *rest)
        else:
            rest[-1].append(f"{prefix}scale: fixed at {self.value:g} here, {float(saved):g} in the state")

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        return ScaledIdentity(self.scale, self.size), self.scale.new_zeros(())


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


class _LearnedSpatial(PriorModule):
    def __init__(self, spec: SpatialIWPrior, channels: int, kernel_size: int, like: Tensor):
        super().__init__()
        paper = spec.scaling == "paper"
        self.channels, self.pixels = channels, kernel_size
        self.factor = channels * kernel_size if paper else channels
        self.prior_scale = float(kernel_size + 1 if paper else kernel_size)
        self.noise_size = kernel_size**2
        identity = torch.eye(kernel_size, dtype=like.dtype, device=like.device)
        self.psi_factor = nn.Parameter(identity.repeat(*like.shape, 1, 1))  # [R, K, K]
        self.log_nu = nn.Parameter(torch.full_like(like, spec.initial_log_nu))  # [R]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        degrees = float(self.pixels + 1)
        identity = torch.eye(self.pixels, dtype=noise.dtype, device=noise.device)
        nu, root = self.log_nu.exp(), self.psi_factor.tril()
        scale = self.prior_scale * identity + nu[..., None, None] * (root @ root.mT)
        prior = InverseWishart(
            torch.full_like(identity[0, 0], degrees), self.prior_scale * identity, validate_args=False
        )
        posterior = InverseWishart(degrees + nu, scale, validate_args=False)
        root = posterior.rsample_cholesky(
            noise=noise.unflatten(-1, (self.pixels, self.pixels))
        )  # [S, R, K, K]
        log_pq = prior.log_prob_cholesky(root) - posterior.log_prob_cholesky(root)
        return KroneckerIdentity(self.factor * (root @ root.mT), self.channels), log_pq
