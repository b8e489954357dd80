"""The factorised (mean-field) Gaussian posterior: every weight on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Positive
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.primal import LOG_2PI, prior_log_prob
from gilib.sites import ConvolutionWeights, Site
from gilib.validation import check_choice


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
    initial_variance: Positive = 1e-3
    variance_start: str = "paper"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        check_choice(self.variance_start, ("paper", "reference"), "variance_start")

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Means and log-variances `[R, I, O]`."""
        module = FactorisedKernels if isinstance(site, ConvolutionWeights) else FactorisedWeights
        return module(self, site, context)


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
        if isinstance(site, ConvolutionWeights) and not isinstance(self, FactorisedKernels):
            raise TypeError(
                "FactorisedWeights are of dense layers: over a convolution take FactorisedKernels"
            )
        fan_in, outputs = site.fan_in, site.outputs
        self.noise_size, self.channels, self.outputs = fan_in * outputs, site.channels, outputs
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
    def deviation(self) -> Tensor:
        """σ, `[R, I, O]`."""
        return (0.5 * self.log_variance).exp()

    @property
    def propagated_variance(self) -> Tensor:
        """σ² as local reparameterisation propagates it to the outputs, `[R, I, O]`."""
        return self.log_variance.exp()

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """With these means."""
        self.scaled_mean.copy_(weights * self.root_fan_in)

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
        weights = self.mean + self.deviation * noise
        log_q = -0.5 * (noise.square().sum((-2, -1)) + (self.log_variance + LOG_2PI).sum((-2, -1)))
        return weights, prior_log_prob(weights, prior_precision, noise.shape[-1]) - log_q

    @property
    def estimate_size(self) -> NoiseSize:
        """One for every output of a point."""
        return NoiseSize(0, self.outputs)

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor]:
        """Sampled outputs; log_pq is minus the closed-form KL(Q‖P) (Kingma, Salimans & Welling, 2015)."""
        outputs = GaussianOutputs(function(self.mean), function(self.propagated_variance), noise.points)
        return outputs, -self.kl(prior_precision).expand(noise.draw.shape[:-1])

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


class FactorisedKernels(FactorisedWeights):
    """The same over the kernels of a convolution, whose pixels share the weights.

    Outputs at two pixels of an image are correlated: sampled one by one they would be those of no kernel, and
    the bound that of no posterior. So the estimate samples weights, W = μ + σ ∘ z ∘ (s rᵀ) at every image:
    z is drawn once, the signs s of the input channels, each for its K rows, and r of the outputs for each
    image (flipout; Wen, Vicol, Ba, Tran & Grosse, 2018). As z is symmetric, the W of an image has the
    distribution Q, and deviations of two images are uncorrelated. It takes two convolutions, where a draw
    takes one.
    """

    @property
    def estimate_size(self) -> NoiseSize:
        """A z for every weight; at every point one normal for the sign of each channel, in and out."""
        return NoiseSize(self.noise_size, self.channels + self.outputs)

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor]:
        """A kernel for every image; log_pq is minus the closed-form KL(Q‖P)."""
        white = noise.draw.unflatten(-1, self.scaled_mean.shape[-2:])
        signs = torch.ones_like(noise.points).copysign(noise.points).split([self.channels, self.outputs], -1)
        flipped = FlippedKernels(function(self.mean), function(self.deviation * white), *signs)
        return flipped, -self.kl(prior_precision).expand(noise.draw.shape[:-1])


@dataclass(frozen=True)
class FlippedKernels:
    """x ↦ mean(x) + r ∘ deviation(s ∘ x), with signs of their own for each of N images.

    Attributes:
        mean: the convolution with mean weights.
        deviation: that with a draw of their deviations.
        inputs: s, `[S, R, N, C]`.
        outputs: r, `[S, R, N, O]`.
    """

    mean: Function
    deviation: Function
    inputs: Tensor
    outputs: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Sample the outputs at images `[..., N, C, H, W]`."""
        centre = self.mean(x)  # [R, N, O, H', W'], or with S
        inputs = noise_at(self.inputs[..., None, None], x, -4).to(x.dtype)
        return centre + self.outputs[..., None, None].to(centre.dtype) * self.deviation(inputs * x)


@dataclass(frozen=True)
class GaussianOutputs:
    """x ↦ mean(x) + √variance(x²) z, independently at N points.

    Attributes:
        mean: the function of mean weights.
        variance: the function of weights' variances, of squared inputs.
        noise: z, `[S, R, N, O]`.
    """

    mean: Function
    variance: Function
    noise: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Sample the outputs at `x`, `[..., N, D]`."""
        centre = self.mean(x)  # [R, N, O], or with S
        spread = self.variance(x.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()  # √ has no slope at 0
        return centre + spread * noise_at(self.noise, centre, -2).to(centre.dtype)
