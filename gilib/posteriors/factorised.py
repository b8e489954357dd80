"""The factorised (mean-field) Gaussian posterior: every weight on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.primal import LOG_2PI, prior_log_prob
from gilib.sites import Site
from gilib.validation import check_choice, check_positive


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

    short_name: ClassVar[str] = "fac"
    initial_variance: float = 1e-3
    variance_start: str = "paper"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        check_positive(self.initial_variance, "initial_variance")
        check_choice(self.variance_start, ("paper", "reference"), "variance_start")

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Means and log-variances `[R, I, O]`."""
        return FactorisedWeights(self, site, context)


class FactorisedWeights(PosteriorModule):
    """Parameters of a factorised posterior.

    Its estimate samples outputs in place of weights (local reparameterisation): F | X is Gaussian at every
    point, with mean X μ and variance X² σ².

    Attributes:
        scaled_mean: √I μ, `[R, I, O]`.
        log_variance: log σ², `[R, I, O]`.
    """

    carries = False

    def __init__(self, spec: Factorised, site: Site, context: BuildContext):
        """Create the parameters."""
        super().__init__()
        fan_in, outputs = site.fan_in, site.outputs
        self.noise_size, self.output_shape = fan_in * outputs, site.pseudo_outputs(1)[1:]
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

    @torch.no_grad()
    def assign(self, mean: Tensor, precision: Tensor) -> None:
        """Take μ and 1/σ² `[R, I, O]` from a rule of training that computes them."""
        self.scaled_mean.copy_(mean * self.root_fan_in)
        self.log_variance.copy_(-precision.log())

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W = μ + σ z."""
        noise = noise.unflatten(-1, self.scaled_mean.shape[-2:])
        weights = self.mean + (0.5 * self.log_variance).exp() * noise
        log_q = -0.5 * (noise.square().sum((-2, -1)) + (self.log_variance + LOG_2PI).sum((-2, -1)))
        return weights, prior_log_prob(weights, prior_precision, noise.shape[-1]) - log_q

    @property
    def estimate_size(self) -> NoiseSize:
        """One for every output of a point."""
        return NoiseSize(0, math.prod(self.output_shape))

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor]:
        """Sampled outputs; log_pq is minus the closed-form KL(Q‖P) (Kingma, Salimans & Welling, 2015)."""
        outputs = noise.points.unflatten(-1, self.output_shape)
        return (
            GaussianOutputs(
                function(self.mean), function(self.propagated_variance), outputs, len(self.output_shape)
            ),
            -self.kl(prior_precision).expand(noise.draw.shape[:-1]),
        )

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


@dataclass(frozen=True)
class GaussianOutputs:
    """x ↦ mean(x) + √variance(x²) z, independently at N points.

    Attributes:
        mean: the function of mean weights.
        variance: the function of weights' variances, of squared inputs.
        noise: z, `[S, R, N, O, ...]`.
        point_axes: axes of one output point.
    """

    mean: Function
    variance: Function
    noise: Tensor
    point_axes: int

    def __call__(self, x: Tensor) -> Tensor:
        """Sample the outputs at `x`, `[..., N, D]`."""
        centre = self.mean(x)  # [R, N, O, ...], or with S
        spread = self.variance(x.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()  # √ has no slope at 0
        return centre + spread * noise_at(self.noise, centre, -1 - self.point_axes).to(centre.dtype)
