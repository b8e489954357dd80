"""The factorised (mean-field) Gaussian posterior, under which all weights are independent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Positive, one_of
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule, WithWeights
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.primal import LOG_2PI, prior_log_prob
from gilib.sites import ConvolutionWeights, Site


@dataclass(frozen=True)
class Factorised(Posterior):
    """Q(W) = Π N(W_io; μ_io, σ²_io); the means start as a draw from NealPrior.

    See Ober & Aitchison (2021, App. O). The means are stored multiplied by √I, see `WeightParameter`.

    Args:
        initial_variance: sets the variances at the start; see `variance_start`.
        variance_start: "paper": the variances start at `initial_variance / √I`. "reference": they start at
            `initial_variance / I`, as in the authors' code.

    >>> Factorised().initial_variance
    0.001
    """

    short_name: ClassVar[str] = "fac"
    initial_variance: Positive = 1e-3
    variance_start: Annotated[str, one_of(("paper", "reference"))] = "paper"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        module = FactorisedKernels if isinstance(site, ConvolutionWeights) else FactorisedWeights
        return module(self, site, context)


class FactorisedWeights(PosteriorModule):
    """Parameters of a factorised posterior over the weights of a dense layer.

    An estimate samples the outputs instead of the weights (local reparameterisation; Kingma, Salimans &
    Welling, 2015): at each point they are Gaussian with mean x μ and variance x² σ².

    Attributes:
        scaled_mean: √I μ, `[R, I, O]`.
        log_variance: log σ², `[R, I, O]`.
    """

    carries = False

    def __init__(self, spec: Factorised, site: Site, context: BuildContext):
        super().__init__()
        if isinstance(site, ConvolutionWeights) and not isinstance(self, FactorisedKernels):
            raise TypeError("FactorisedWeights are of dense layers: convolutions have FactorisedKernels")
        fan_in, outputs = site.fan_in, site.outputs
        self.noise_size, self.channels, self.outputs = fan_in * outputs, site.channels, outputs
        self.root_fan_in = site.scale
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
        """The variances that estimates use, `[R, I, O]`; σ², unless a subclass changes them."""
        return self.log_variance.exp()

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set the means to `weights`; the variances stay as they are."""
        self.scaled_mean.copy_(weights * self.root_fan_in)

    @torch.no_grad()
    def assign(self, mean: Tensor, precision: Tensor) -> None:
        """Set μ and 1/σ², both `[R, I, O]`, for training rules that compute them."""
        self.scaled_mean.copy_(mean * self.root_fan_in)
        self.log_variance.copy_(-precision.log())

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw W = μ + σ ∘ z from standard normals z."""
        noise = noise.unflatten(-1, self.scaled_mean.shape[-2:])
        weights = self.mean + self.deviation * noise
        log_q = -0.5 * (noise.square().sum((-2, -1)) + (self.log_variance + LOG_2PI).sum((-2, -1)))
        return weights, prior_log_prob(weights, prior_precision, noise.shape[-1]) - log_q

    @property
    def estimate_size(self) -> NoiseSize:
        return NoiseSize(0, self.outputs)

    def estimate(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Noise, function: WithWeights
    ) -> tuple[Function, Tensor]:
        outputs = GaussianOutputs(function(self.mean), function(self.propagated_variance), noise.points)
        return outputs, -self.kl(prior_precision).expand(noise.draw.shape[:-1])

    def kl(self, prior_precision: SymmetricOperator) -> Tensor:
        """Return KL(Q(W)‖N(0, P⁻¹)) in closed form, nats, `[S, R]`.

        KL = ½ Σ_o [tr(P Σ_o) + μ_oᵀ P μ_o - I - log det P - log det Σ_o].
        """
        variance = self.log_variance.exp()
        outputs = variance.shape[-1]
        trace = (prior_precision.diagonal()[..., None] * variance).sum((-2, -1))
        log_dets = outputs * prior_precision.log_det() + self.log_variance.sum((-2, -1))
        count = outputs * prior_precision.size
        return 0.5 * (trace + prior_precision.quadratic(self.mean) - count - log_dets)


class FactorisedKernels(FactorisedWeights):
    """`FactorisedWeights` for a convolution, whose estimate samples a separate kernel for each image.

    The kernel of an image is W = μ + σ ∘ z ∘ (s rᵀ) (flipout; Wen, Vicol, Ba, Tran & Grosse, 2018). The
    standard normals z are drawn once, and random signs for each image: s for the input channels, repeated for
    the K pixels of the kernel, and r for the output channels. So each W has the distribution Q, and the
    deviations of two images are uncorrelated. Outputs sampled pixel by pixel would give no bound, because no
    kernel has them. This needs two convolutions; a draw needs one.
    """

    @property
    def estimate_size(self) -> NoiseSize:
        return NoiseSize(self.noise_size, self.channels + self.outputs)

    def estimate(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Noise, function: WithWeights
    ) -> tuple[Function, Tensor]:
        white = noise.draw.unflatten(-1, self.scaled_mean.shape[-2:])
        # z is shared by all images; each has its own signs, which are those of standard normals
        signs = torch.ones_like(noise.points).copysign(noise.points).split([self.channels, self.outputs], -1)
        flipped = FlippedKernels(function(self.mean), function(self.deviation * white), *signs)
        return flipped, -self.kl(prior_precision).expand(noise.draw.shape[:-1])


@dataclass(frozen=True)
class FlippedKernels:
    """The function x ↦ mean(x) + r ∘ deviation(s ∘ x), with separate signs s and r for each of N images."""

    mean: Function  # convolution with the mean weights
    deviation: Function  # convolution with the drawn deviations σ ∘ z
    inputs: Tensor  # s, the signs of the input channels, `[S, R, N, C]`
    outputs: Tensor  # r, the signs of the output channels, `[S, R, N, O]`

    def __call__(self, x: Tensor) -> Tensor:
        centre = self.mean(x)  # [R, N, O, H', W'], or with S
        inputs = noise_at(self.inputs[..., None, None], x, -4).to(x.dtype)
        return centre + self.outputs[..., None, None].to(centre.dtype) * self.deviation(inputs * x)


@dataclass(frozen=True)
class GaussianOutputs:
    """The function x ↦ mean(x) + √variance(x²) ∘ z, which samples N points independently."""

    mean: Function  # the layer's function with the mean weights
    variance: Function  # the layer's function with the variances as weights; its inputs are squared
    noise: Tensor  # z, standard normals `[S, R, N, O]`

    def __call__(self, x: Tensor) -> Tensor:
        centre = self.mean(x)  # [R, N, O], or with S
        # clamped, because the square root has an infinite slope at zero
        spread = self.variance(x.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return centre + spread * noise_at(self.noise, centre, -2).to(centre.dtype)
