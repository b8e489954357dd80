"""A reader's own layer, posterior, prior and likelihood, written against public names only."""

import math
from dataclasses import dataclass

import torch
from torch import nn

import gilib
from gilib.linalg import ScaledIdentity


class Warp(gilib.layers.Layer):
    """x ↦ x + a sin(frequency x), feature by feature; P(a) = N(0, 1), Q(a) = N(m, s²)."""

    def __init__(self, frequency=1.0):
        super().__init__()
        self.frequency = frequency

    def build(self, shape, context):
        self.replicas = context.replicas
        self.mean = nn.Parameter(context.normal(*shape))
        self.log_sd = nn.Parameter(context.full(shape, -2.0))
        self.noise_size = math.prod(shape)
        return shape

    def sample(self, inducing, noise, mode):
        size = self.mean + self.log_sd.exp() * noise.draw  # [S, R, D]
        log_pq = (0.5 * (noise.draw.square() - size.square()) + self.log_sd).sum(-1)
        return mode(Warped(size, self.frequency), log_pq)

    def config(self):
        return {"frequency": self.frequency}


class Warped:
    """[..., N, D] to [S, R, ..., N, D]."""

    def __init__(self, size, frequency):
        self.size, self.frequency = size, frequency

    def __call__(self, x):
        return x + self.size[..., None, :] * (self.frequency * x).sin()


@dataclass(frozen=True)
class OneWidth(gilib.posteriors.Posterior):
    """Q(W) = Π N(W_io; M_io, s²), one s for all weights."""

    short_name = "one"
    initial_sd: float = 0.1

    def build(self, site, context):
        return OneWidthWeights(self.initial_sd, site, context)


class OneWidthWeights(gilib.posteriors.PosteriorModule):
    def __init__(self, initial_sd, site, context):
        super().__init__()
        self.noise_size = site.fan_in * site.outputs
        self.mean = context.weights(site)
        self.log_sd = nn.Parameter(context.full((), math.log(initial_sd)))

    def draw(self, features, prior_precision, noise):
        mean = self.mean()
        noise = noise.unflatten(-1, mean.shape[-2:])  # [S, R, I, O]
        weights = mean + self.log_sd.exp()[..., None, None] * noise
        log_p = 0.5 * (weights.shape[-1] * prior_precision.log_det() - prior_precision.quadratic(weights))
        log_q = -0.5 * noise.square().sum((-2, -1)) - self.noise_size * self.log_sd
        return weights, log_p - log_q  # the constants cancel


@dataclass(frozen=True)
class LogNormalScale(gilib.priors.Prior):
    """Precision I · exp(spread · t), P(t) = N(0, 1), Q(t) = N(m, s²)."""

    spread: float = 1.0

    def build(self, site, like):
        return LogNormalPrecision(self.spread, site.fan_in, like)


class LogNormalPrecision(gilib.priors.PriorModule):
    noise_size = 1

    def __init__(self, spread, size, like):
        super().__init__()
        self.spread, self.size = spread, size
        self.mean = nn.Parameter(torch.zeros_like(like))  # [R]
        self.log_sd = nn.Parameter(torch.full_like(like, -1.0))  # [R]

    def draw(self, noise):
        z = noise[..., 0]
        t = self.mean + self.log_sd.exp() * z
        log_pq = 0.5 * (z.square() - t.square()) + self.log_sd
        return ScaledIdentity(self.size * (self.spread * t).exp(), self.size), log_pq


class LaplaceNoise(gilib.likelihoods.Likelihood):
    """y ~ Laplace(f, b), b learned, one for every replica."""

    def __init__(self, scale=0.5, replicas=()):
        super().__init__()
        self.start, self.replicas = scale, tuple(replicas)
        self.log_scale = nn.Parameter(torch.full(self.replicas, math.log(scale), dtype=torch.float64))

    def distribution(self, outputs):
        scale = self.log_scale.exp()[..., None, None].to(outputs)
        return torch.distributions.Laplace(outputs, scale, validate_args=False)

    def predictive(self, outputs, normalisation=None):
        scale = self.log_scale.exp()[..., None, None].expand(1, *outputs.shape[1:])
        if normalisation is None:
            return LaplacePrediction(outputs, scale)
        return LaplacePrediction(normalisation.invert_y(outputs), normalisation.scale_y(scale))

    def config(self):
        return {"scale": self.start, "replicas": self.replicas}


@dataclass(frozen=True)
class LaplacePrediction(gilib.prediction.Prediction):
    """An equal mixture of S Laplace distributions."""

    centres: torch.Tensor
    scale: torch.Tensor

    @property
    def mean(self):
        return self.centres.mean(0)

    def log_prob(self, targets):
        density = torch.distributions.Laplace(self.centres, self.scale.expand_as(self.centres))
        return gilib.metrics.log_mean_exp(density.log_prob(targets).sum(-1), 0)


def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    return x, (2 * x[:, :1]).sin() + 0.1 * noise


def network(replicas=(), seed=0, generator=None):
    """All four kinds beside those of the library."""
    x, y = data()
    layers = [
        Warp(1.5),
        gilib.Linear(2, 6, OneWidth(0.05), LogNormalScale(0.5)),
        nn.LeakyReLU(0.2),
        gilib.Residual([gilib.Linear(6, 6, OneWidth()), Warp(0.5)]),
        gilib.Linear(6, 1, gilib.GlobalInducing(), LogNormalScale()),
    ]
    settings = {"replicas": replicas, "generator": generator or torch.Generator().manual_seed(seed)}
    return gilib.Network(x[:8], layers, pseudo_outputs=y[:8], **settings)


def train(net, likelihood, **settings):
    x, y = data()
    defaults = {"steps": 60, "batch_size": 20, "num_samples": 4, "progress": False}
    return gilib.fit(net, likelihood, x, y, **(defaults | settings))
