"""Oracles for Gaussian processes: dense matrices of the textbook kernel, and exact averages by cubature."""

import math

import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.drawables import OfNetwork
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
    targets = pseudo if posterior.is_global else None
    net = gilib.Network(
        inducing,
        [layer],
        pseudo_outputs=targets,
        input_shape=inducing.shape[-1:],
        generator=seeded(),
        **settings,
    )
    if pseudo is not None and not posterior.is_global:
        layer.weights.pseudo.outputs.data.copy_(pseudo)
    return shaken(net, shake)


def layer_of(net, place=0):
    """One of its layers."""
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
    """Inputs and noisy targets."""
    x = normals(points, inputs, seed=seed)
    y = torch.sin(2 * x @ normals(inputs, outputs, seed=seed + 1)) + 0.3 * normals(
        points, outputs, seed=seed + 2
    )
    return x, y
