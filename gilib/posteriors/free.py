"""Free Gaussians over what a process is at its inducing inputs: doubly stochastic variational inference."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Count, Positive
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, InducingPosterior, PosteriorModule, WeightDistribution
from gilib.posteriors.inducing import network_points, own_points
from gilib.posteriors.pseudo import fitted
from gilib.sites import InducingOutputs, Site

HIDDEN_SCALE = 0.1


@dataclass(frozen=True)
class FreeGaussian(InducingPosterior):
    """Q(w_o) = N(m_o, L_o L_oᵀ) for whitened inducing outputs u = R w (Salimbeni & Deisenroth, 2017).

    A Gaussian process with it is a sparse one (Hensman et al., 2013); several are a doubly stochastic deep
    GP. An estimate integrates w out, and the divergence has a closed form.

    Args:
        num_inducing: M of this layer; None: as many as the network's inducing points.
        initial_scale: L starts as this times the identity; None: 1 in the last layer and 0.1 below, so that
            layers begin near their mean functions. From 1e-5, the authors' start, 3000 steps end at bounds
            that are lower by 1 to 3 nats a point (experiment `dgp_start`).

    >>> FreeGaussian(num_inducing=100).short_name
    'dsvi'
    """

    short_name: ClassVar[str] = "dsvi"
    num_inducing: Count | None = None
    initial_scale: Positive | None = None

    def points(self, context: BuildContext) -> int:
        """Its own, or as many as the network has."""
        return own_points(self.num_inducing, context, "FreeGaussian")

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Means and factors."""
        if not isinstance(site, InducingOutputs):
            raise ValueError(
                "FreeGaussian is over the inducing outputs of a Gaussian process, not over weights: use it "
                "in gilib.GP, or take Factorised, LocalInducing or GlobalInducing for a layer of weights"
            )
        return FreeInducing(self, site, context)


class Gaussians(ABC):
    """Something whose parameters are Gaussians N(m, L Lᵀ) with a full L: what natural gradients move."""

    @property
    @abstractmethod
    def gaussian_parameters(self) -> list[nn.Parameter]:
        """Those that make up means and factors."""

    @abstractmethod
    def dense(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Means `[R, n, O]` and factors `[R, O, n, n]` from values, or gradients, of these parameters."""

    @abstractmethod
    def undense(self, gaussians: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Values of the parameters from what `dense` gives."""


class FreeInducing(PosteriorModule, Gaussians):
    """Parameters of a free Gaussian.

    Attributes:
        mean: m, `[R, M, O]`.
        root: L in its lower triangle, `[R, O, M, M]`.
    """

    carries = False

    def __init__(self, spec: FreeGaussian, site: Site, context: BuildContext):
        """Start at zero mean."""
        super().__init__()
        points, outputs = site.channels, site.outputs
        self.noise_size = points * outputs
        self.mean = nn.Parameter(context.full((points, outputs), 0.0))
        scale = spec.initial_scale or (1.0 if context.last else HIDDEN_SCALE)
        identity = torch.eye(points, dtype=context.dtype, device=context.device)
        self.root = nn.Parameter(context.full((outputs, points, points), 0.0) + scale * identity)

    @property
    def gaussian_parameters(self) -> list[nn.Parameter]:
        """Mean and factor."""
        return [self.mean, self.root]

    def dense(self, values: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """As they are."""
        mean, root = values
        return [(mean, root)]

    def undense(self, gaussians: Sequence[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """As they are."""
        return list(gaussians[0])

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W = m + L z; log_pq = -½‖w‖² + ½‖z‖² + Σ log|L_ii|."""
        noise = noise.unflatten(-1, self.mean.shape[-2:])
        weights = self.mean + (self.root.tril() @ noise.mT[..., None])[..., 0].mT
        squares = (noise.square() - weights.square()).sum((-2, -1))
        return weights, 0.5 * squares + self.half_log_det

    @property
    def half_log_det(self) -> Tensor:
        """Σ log|L_ii|, `[R]`."""
        return half_log_det(self.root)

    @property
    def distribution_size(self) -> int:
        """Zero, because everything is integrated out."""
        return 0

    def distribution(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> WeightDistribution:
        """Means, covariances L Lᵀ, and minus the divergence."""
        root = self.root.tril()
        return WeightDistribution(self.mean.clone(), root @ root.mT, -self.kl().expand(noise.shape[:-1]))

    def kl(self) -> Tensor:
        """KL(Q(w) ‖ N(0, Id)) = ½ (‖L‖² + ‖m‖² - M O) - Σ log|L_ii|, `[R]` nats."""
        squares = self.root.tril().square().sum((-3, -2, -1)) + self.mean.square().sum((-2, -1))
        return 0.5 * (squares - self.noise_size) - self.half_log_det


@dataclass(frozen=True)
class PropagatedGaussian(InducingPosterior):
    """Q(u_o) = N(m_o, L_o L_oᵀ) at inducing inputs that layers below pass on (Ustyuzhaninov et al., 2020).

    Between `FreeGaussian` and `GlobalInducing`: what a layer is at its inducing inputs is drawn without a
    look at them, so that only functions of layers next to each other depend on each other (Ober & Aitchison,
    2021, App. G); with skip connections (`Residual`, `deep_gp`) all do.

    Args:
        initial_scale: L starts as this times the identity: small, since white noise is improbable under a
            smooth kernel. The means start at the targets in the last layer, at zero below.

    >>> PropagatedGaussian().short_name
    'prop'
    """

    short_name: ClassVar[str] = "prop"
    is_global: ClassVar[bool] = True
    initial_scale: Positive = 1e-2

    def points(self, context: BuildContext) -> int:
        """Those of the network."""
        return network_points(context, "PropagatedGaussian")

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Means and factors."""
        if not isinstance(site, InducingOutputs):
            raise ValueError(
                "PropagatedGaussian is over the inducing outputs of a Gaussian process: use it in gilib.GP"
            )
        return PropagatedInducing(self, site, context)


class PropagatedInducing(PosteriorModule):
    """Parameters of a Gaussian over inducing outputs, not whitened.

    Attributes:
        mean: m, `[R, M, O]`.
        root: L in its lower triangle, `[R, O, M, M]`.
    """

    needs_inducing = True

    def __init__(self, spec: PropagatedGaussian, site: Site, context: BuildContext):
        """Start at the targets, or at zero."""
        super().__init__()
        points, outputs = site.channels, site.outputs
        self.noise_size = points * outputs
        given, shape = context.pseudo_outputs, site.pseudo_outputs(points)
        self.starts_at_targets = given is not None
        self.mean = nn.Parameter(context.full(shape, 0.0) if given is None else fitted(given, shape, context))
        identity = torch.eye(points, dtype=context.dtype, device=context.device)
        start = context.full((outputs, points, points), 0.0)
        self.root = nn.Parameter(start + spec.initial_scale * identity)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W = R⁻¹ (m + L z); log_pq = -½‖w‖² - O Σ log R_ii + ½‖z‖² + Σ log|L_ii|."""
        assert features is not None
        noise = noise.unflatten(-1, self.mean.shape[-2:])
        outputs = self.mean + (self.root.tril() @ noise.mT[..., None])[..., 0].mT
        weights = torch.linalg.solve_triangular(features, outputs, upper=False)
        log_prior = -0.5 * weights.square().sum((-2, -1))
        log_prior = log_prior - outputs.shape[-1] * features.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        log_det = half_log_det(self.root)
        return weights, log_prior + 0.5 * noise.square().sum((-2, -1)) + log_det


def half_log_det(root: Tensor) -> Tensor:
    """Σ log|L_ii| of factors `[..., O, M, M]`, `[...]`; a step may put an entry at zero, and pass it."""
    diagonal = root.diagonal(dim1=-2, dim2=-1).abs()
    return diagonal.clamp_min(torch.finfo(root.dtype).tiny).log().sum((-2, -1))
