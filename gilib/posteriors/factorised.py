"""The factorised (mean-field) Gaussian posterior: every weight on its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.regression import LOG_2PI, prior_log_prob
from gilib.validation import choice, positive


@dataclass(frozen=True)
class Factorised(Posterior):
    """Q(W) = Π N(W_io; μ_io, σ²_io).

    The mean is stored multiplied by √I, so that Adam sees parameters of scale one (Ober & Aitchison, 2021,
    App. H, Eq. 83); it starts as a draw from NealPrior (App. O).

    Args:
        initial_variance: the variances start at initial_variance/√I ("paper") or initial_variance/I
            ("reference").
        variance_start: "paper" or "reference", the latter as in the reference implementation.

    >>> Factorised().initial_variance
    0.001
    """

    short: ClassVar[str] = "fac"
    initial_variance: float = 1e-3
    variance_start: str = "paper"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        positive(self.initial_variance, "initial_variance")
        choice(self.variance_start, ("paper", "reference"), "variance_start")

    def build(
        self, fan_in: int, outputs: int, bias: bool, well_scaled: bool, context: BuildContext
    ) -> PosteriorModule:
        """Means and log-variances `[R, I, O]`."""
        return FactorisedWeights(self, fan_in, outputs, context)


class FactorisedWeights(PosteriorModule):
    """Parameters of a factorised posterior.

    Attributes:
        scaled_mean: √I μ, `[R, I, O]`.
        log_variance: log σ², `[R, I, O]`.
    """

    def __init__(self, spec: Factorised, fan_in: int, outputs: int, context: BuildContext):
        """Create the parameters."""
        super().__init__()
        self.root_fan_in = math.sqrt(fan_in)
        power = 0.5 if spec.variance_start == "paper" else 1.0
        self.scaled_mean = nn.Parameter(context.normal(fan_in, outputs))
        start = math.log(spec.initial_variance) - power * math.log(fan_in)
        self.log_variance = nn.Parameter(context.full((fan_in, outputs), start))

    @property
    def mean(self) -> Tensor:
        """μ, `[R, I, O]`."""
        return self.scaled_mean / self.root_fan_in

    @property
    def propagated_variance(self) -> Tensor:
        """σ² as local reparameterisation propagates it to the outputs, `[R, I, O]`."""
        return self.log_variance.exp()

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W = μ + σ z."""
        weights = self.mean + (0.5 * self.log_variance).exp() * noise
        log_q = -0.5 * (noise.square().sum((-2, -1)) + (self.log_variance + LOG_2PI).sum((-2, -1)))
        return weights, prior_log_prob(weights, prior_precision, noise.shape[-1]) - log_q

    def kl(self, prior_precision: SymmetricOperator) -> Tensor:
        """KL(Q(W)‖N(0, P⁻¹)) in closed form, `[S, R]` nats, given the prior precision.

        KL = ½ Σ_o [tr(P Σ_o) + μ_oᵀ P μ_o - I - log det P - log det Σ_o].
        """
        variance = self.log_variance.exp()
        outputs = variance.shape[-1]
        trace = (prior_precision.diagonal()[..., None] * variance).sum((-2, -1))
        log_dets = outputs * prior_precision.log_det() + self.log_variance.sum((-2, -1))
        count = outputs * prior_precision.size
        return 0.5 * (trace + prior_precision.quadratic(self.mean) - count - log_dets)
