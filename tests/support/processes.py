"""Oracles for Gaussian processes: dense matrices of the textbook kernel, and exact averages by cubature."""

import math

import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.prediction.drawables import OfNetwork
from tests.kernels.cases import textbook
from tests.support import D, normals, pseudo_precision, seeded, shaken

KERNEL = gilib.kernels.RBF(lengthscale=(0.8, 1.3), variance=1.7)
NOISE = 0.09


def cubature(size):
    """2K points `[2K, K]` over which averages of quadratic functions of K standard normals are exact."""
    root = math.sqrt(size) * torch.eye(size, dtype=D)
    return torch.cat([root, -root])


def covariance(values):
    """Over the first axis, of vectors that are affine in the normals of a cubature."""
    centred = values - values.mean(0)
    return centred.mT @ centred / len(values)


def one_layer(
    posterior, *, inducing, pseudo=None, outputs=2, kernel=KERNEL, jitter=0.0, shake=0.0, **settings
):
    """A network of one process, float64; a layer of its own inducing inputs has them at `inducing`."""
    own = {} if posterior.is_global else {"inducing_inputs": inducing}
    layer = gilib.GP(inducing.shape[-1], outputs, kernel, posterior, jitter=jitter, num_features=16, **own)
    settings |= {"pseudo_outputs": pseudo if posterior.is_global else None, "generator": seeded()}
    net = gilib.Network(inducing, [layer], input_shape=inducing.shape[-1:], **settings)
    if pseudo is not None and not posterior.is_global:
        layer.weights.pseudo.outputs.data.copy_(pseudo)
    return shaken(net, shake)


def layer_of(net, place=0):
    return list(net.layers)[place]


def conditional(kernel, z, x, v, precision, nugget=0.0):
    """Mean and covariance of (u, f(x)) `[M + N]` given v = u + noise of this precision, by their joint."""
    both = torch.cat([z, x])
    prior = textbook(kernel, both, both)
    noise = torch.linalg.inv(precision)
    prior[: len(z), : len(z)] += nugget * torch.eye(len(z), dtype=D)
    seen = prior[: len(z), : len(z)] + noise
    gain = prior[:, : len(z)] @ torch.linalg.inv(seen)
    return gain @ v, prior - gain @ prior[: len(z)]


def log_ratio(kernel, z, v, precision, u, nugget=0.0):
    """Log N(v; 0, K + Λ⁻¹) - log N(v; u, Λ⁻¹) of one output; u `[S, M]`."""
    noise = torch.linalg.inv(precision)
    prior = textbook(kernel, z, z) + nugget * torch.eye(len(z), dtype=D)
    evidence = MultivariateNormal(torch.zeros(len(z), dtype=D), prior + noise).log_prob(v)
    return evidence - MultivariateNormal(u, noise).log_prob(v)


def precisions(layer):
    """Λ_o of every output, `[O, M, M]`."""
    given = pseudo_precision(layer.weights).detach()
    return given.expand(layer.out_features, *given.shape[1:])


class ByCubature(OfNetwork):
    """One process whose inducing outputs are drawn by cubature: averages over its draws are exact."""

    def __init__(self, net):
        self.net, self.size = net, layer_of(net).weights.noise_size

    def network(self):
        return self.net

    def draw(self, num_samples=1, *, generator=None):
        noise = self.net.base_noise(2 * self.size, seeded(1))
        noise[:, : self.size] = cubature(self.size)
        return self.net.draw(noise=noise)


def wave(points, inputs=2, outputs=2, seed=1):
    x = normals(points, inputs, seed=seed)
    mean = torch.sin(2 * x @ normals(inputs, outputs, seed=seed + 1))
    return x, mean + 0.3 * normals(points, outputs, seed=seed + 2)


X0, V0 = normals(5, 2, seed=31), normals(5, 2, seed=32)
PARTS = gilib.kernels.RBF(0.9) * gilib.kernels.DotProduct() + gilib.kernels.Matern(1.3, smoothness=1.5)


def deep(posterior, depth=2, **settings):
    """A deep process [2 → ... → 2] from five inducing points, float64, its parameters shaken."""
    last = posterior[-1] if isinstance(posterior, (list, tuple)) else posterior
    settings.setdefault("pseudo_outputs", V0 if last.is_global else None)
    settings.setdefault("generator", seeded())
    settings |= {"posterior": posterior, "inducing_points": X0, "num_features": 8, "dtype": D}
    return shaken(gilib.models.deep_gp(2, 2, depth, **settings), 0.1)


def mixed(layers, replicas=()):
    settings = {"pseudo_outputs": V0, "input_shape": (2,), "generator": seeded(), "dtype": D}
    return shaken(gilib.Network(X0, layers, replicas=replicas, **settings), 0.1)


def process(inputs, outputs, posterior=None, **settings):
    return gilib.GP(inputs, outputs, posterior=posterior, num_features=8, **settings)


NETWORKS = {
    "global": lambda **s: deep(gilib.GlobalInducing("full"), **s),
    "global, per output": lambda **s: deep(gilib.GlobalInducing("per_output"), 3, kernel=PARTS, **s),
    "local": lambda **s: deep(gilib.LocalInducing(), **s),
    "local, marginalised": lambda **s: deep(gilib.LocalInducing(precision="full", marginalise=True), **s),
    "free": lambda **s: deep(gilib.FreeGaussian(initial_scale=0.5), 3, **s),
    "free, then global": lambda **s: deep([gilib.FreeGaussian(5), gilib.GlobalInducing()], **s),
    "narrow": lambda **s: deep(gilib.GlobalInducing(), 3, width=1, **s),
    "weights, then a process": lambda **s: mixed([gilib.Linear(2, 3), torch.nn.Tanh(), process(3, 2)], **s),
    "a process, then weights": lambda **s: mixed(
        [process(2, 3), gilib.Residual([process(3, 3)]), gilib.Linear(3, 2)], **s
    ),
    "factorised below": lambda **s: mixed(
        [gilib.Linear(2, 2, gilib.Factorised()), process(2, 2, gilib.GlobalInducing())], **s
    ),
}
