"""Posteriors from inducing points: Bayesian linear regression from features onto learned pseudo-outputs.

    Q(W | Φ) ∝ Π_o N(w_o; 0, P⁻¹) N(v_o; Φ w_o, Λ_o⁻¹)        (Ober & Aitchison, 2021, Eq. 11)

With global inducing points, Φ are features of the network's inducing points, which pass through the layers
below. With local ones, Φ is a parameter of the layer. This is the only difference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from gilib.linalg import SymmetricOperator, cholesky_and_inverse, readable
from gilib.linalg.factor import tril_logdet
from gilib.posteriors.base import (
    BuildContext,
    InducingPosterior,
    OwnInducing,
    PosteriorModule,
    WeightDistribution,
)
from gilib.posteriors.pseudo import FACTOR_DTYPES, PseudoData, PseudoSettings
from gilib.regression import WeightPosterior, regress
from gilib.regression.dual import DualWeightPosterior, regress_dual
from gilib.regression.primal import NAMED, merge_outputs
from gilib.sites import Site
from gilib.statistics import Statistics

FEW = 3  # if FEW · M ≤ I, solve the M × M system: measured 1.1 to 5 times as fast at I = 3 M, 1.0 to 3 at 2 M
HARD = 1e5  # condition numbers above which "auto" factorises in float64


@dataclass(frozen=True)
class GlobalInducing(PseudoSettings, InducingPosterior):
    """Regression from points that have passed through layers below (Ober & Aitchison, 2021, Sec. 2.1).

    Args:
        precision: kind of the precision Λ of the pseudo-outputs. "shared": one number per inducing point, by
            far the cheapest, as one factorisation serves all outputs. "per_output": one per inducing point
            and output. "full": a matrix over inducing points, whose Cholesky factor is learned; for Gaussian
            processes.
        log_precision: initial value of the log-precisions; None: 0 in the last layer and -4 in the others
            (App. O). Higher values hold a layer closer to its pseudo-outputs.
        log_precision_scale: the stored parameter is log λ divided by this number (App. H, App. O).
        factor_dtype: dtype of the statistics and the factorisation: "parameters" (theirs), "float32",
            "float64" or "auto": float64 under priors that let features grow and, on a CPU, where the
            condition number may exceed 1e5; otherwise "parameters".

    >>> GlobalInducing(precision="per_output").short_name
    'gi'
    """

    short_name: ClassVar[str] = "gi"
    is_global: ClassVar[bool] = True

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        pseudo = PseudoData(self, site, self.points(context), context, targets=True)
        return InducingWeights(self, site, pseudo, None, context.pseudo_outputs is not None)


@dataclass(frozen=True)
class LocalInducing(PseudoSettings, OwnInducing):
    """Regression from features that the layer learns itself (Ober & Aitchison, 2021, Sec. 2.4).

    Args:
        num_inducing: M, the number of inducing points of this layer. None: as many as the network has, or I
            if it has none.
        marginalise: for a Gaussian process, whether estimates integrate over the inducing outputs, which the
            paper draws. Gradients then have less noise.

    `precision`, `log_precision`, `log_precision_scale` and `factor_dtype` are those of `GlobalInducing`.

    >>> LocalInducing(num_inducing=100).num_inducing
    100
    """

    short_name: ClassVar[str] = "li"
    marginalise: bool = False

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        if site.supplies_features:
            pseudo = PseudoData(self, site, site.channels, context, targets=False)
            return (MarginalisedOutputs if self.marginalise else InducingWeights)(self, site, pseudo, None)
        if self.marginalise:
            raise ValueError(
                "marginalise=True integrates the inducing outputs of a Gaussian process out, and weights are "
                "drawn: leave it out, or take Factorised(), whose estimates integrate"
            )
        rows = site.as_dense()
        points = self.num_inducing or (context.num_inducing if rows is site else None) or site.fan_in
        inputs = context.normal(points, site.fan_in - site.bias)
        return InducingWeights(self, rows, PseudoData(self, rows, points, context, targets=False), inputs)


def _is_hard(gram: Tensor, smallest: Tensor | float) -> bool:
    """Return whether tr A / min P, a bound of a condition number, is known to be too large for float32."""
    if not readable(gram):
        return False
    hard = gram.diagonal(dim1=-2, dim2=-1).sum(-1).max() > HARD * smallest
    return readable(hard) and bool(hard)


class InducingWeights(PosteriorModule):
    """Parameters of an inducing-point posterior over the unknowns `[I, O]` of a site.

    Attributes:
        pseudo: pseudo-outputs V and their precisions.
        inducing_inputs: learned features of a local posterior, `[R, M, I - bias]`, without ones for a bias;
            None if the layers below, or the layer itself, supply the features.
    """

    def __init__(
        self,
        spec: PseudoSettings,
        site: Site,
        pseudo: PseudoData,
        inputs: Tensor | None,
        starts_at_targets: bool = False,
    ):
        super().__init__()
        self.site, self.pseudo, self.starts_at_targets = site, pseudo, starts_at_targets
        self.noise_size = site.fan_in * site.outputs
        self.automatic = spec.factor_dtype == "auto"
        double = self.automatic and site.features_grow
        self.factor_dtype = torch.float64 if double else FACTOR_DTYPES[spec.factor_dtype]
        self.needs_inducing = inputs is None
        self.inducing_inputs = None if inputs is None else nn.Parameter(inputs)

    def _own_features(self) -> Tensor | None:
        """Return Φ of a local posterior, `[R, M, I]`; None if it is given."""
        own = self.inducing_inputs
        return None if own is None else pad(own, (0, int(self.site.bias)), value=1.0)

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set the pseudo-outputs to the outputs of these weights, with precisions that hold draws there."""
        own = self._own_features()
        outputs = outputs if own is None else own @ weights
        assert outputs is not None
        self.pseudo.start_at(outputs)

    def statistics(self, features: Tensor, dtype: torch.dtype) -> Statistics:
        """Return the statistics of the regression from `features` `[S, R, M, ...]`, computed in `dtype`."""
        return self.site.statistics(features.to(dtype), self.pseudo.observed(dtype))

    @property
    def is_few(self) -> bool:
        """Whether the regression has so few rows that the dual system, of their size, is the faster one."""
        return FEW * self.pseudo.points * self.site.windows_per_point <= self.site.fan_in

    def condition(
        self, features: Tensor | None, prior_precision: SymmetricOperator
    ) -> WeightPosterior | DualWeightPosterior:
        """Return Q(W | Φ), the posterior over the unknowns given inducing features Φ `[S, R, M, ...]`.

        Raises:
            ValueError: if number or shape of the features differ from those for which the layer was built.
        """
        own = self._own_features()
        features = features if own is None else own
        assert features is not None
        self.site.check_features(features, self.pseudo.points)
        dtype = self.factor_dtype or features.dtype
        # with "auto", a regression too hard for float32 is repeated in float64
        mend = self.automatic and dtype == torch.float32
        if self.is_few:
            dual = self._regress_dual(features, prior_precision, dtype)
            hard = mend and _is_hard(dual.gram, 1.0)
            return self._regress_dual(features, prior_precision, torch.float64) if hard else dual
        statistics = self.statistics(features, dtype)
        if mend and _is_hard(statistics.gram, prior_precision.diagonal().min()):
            dtype = torch.float64
            statistics = self.statistics(features, dtype)
        return regress(statistics, prior_precision.to(dtype))

    def _regress_dual(
        self, features: Tensor, prior_precision: SymmetricOperator, dtype: torch.dtype
    ) -> DualWeightPosterior:
        rows, observed = self.site.rows(features.to(dtype), self.pseudo.observed(dtype))
        return regress_dual(*observed.whitened(rows), prior_precision.to(dtype))

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        posterior = self.condition(features, prior_precision)
        noise = noise.unflatten(-1, (self.site.fan_in, self.site.outputs))
        weights, log_pq = posterior.draw(noise.to(posterior.dtype))
        return weights.to(noise.dtype), log_pq.to(noise.dtype)


class MarginalisedOutputs(InducingWeights):
    """An inducing-point posterior of a process whose inducing outputs `distribution` integrates out."""

    distribution_size = 0  # nothing is drawn

    def distribution(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> WeightDistribution:
        """Return N(m_o, S_o), where S = H⁻¹ and m = S b, and minus the divergence from the prior.

        log_pq = ½ Σ_o [log det P + log det S_o + M - tr(P S_o) - m_oᵀ P m_o], in nats.
        """
        posterior = self.condition(features, prior_precision)
        assert isinstance(posterior, WeightPosterior)
        _, inverse = cholesky_and_inverse(posterior.precision, *NAMED)  # S = T⁻ᵀ T⁻¹, `[..., G, M, M]`
        covariance, prior = inverse.mT @ inverse, posterior.prior_precision
        mean, columns = merge_outputs(covariance @ posterior.shift), posterior.shift.shape[-1]
        squares = prior.quadratic(mean) + columns * prior.quadratic(inverse.mT).sum(-1)
        log_dets = mean.shape[-1] * prior.log_det() + 2 * columns * tril_logdet(inverse).sum(-1)
        log_pq = 0.5 * (log_dets + self.noise_size - squares)
        found = (value.to(noise.dtype) for value in (mean, covariance, log_pq.expand(noise.shape[:-1])))
        return WeightDistribution(*found)
