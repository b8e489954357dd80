"""Regressions whose weights, or inducing outputs, are the states of chains."""

from dataclasses import dataclass

import torch

import gilib
from gilib.training import SGHMC
from tests.kernels.cases import textbook
from tests.support import D, normals, seeded, with_ones

N, NOISE, KERNEL = 20, 0.09, gilib.kernels.RBF(lengthscale=(0.8, 1.3), variance=1.7)
X = normals(N, 2, seed=1)
Y = X @ torch.tensor([[1.0], [-2.0]], dtype=D) + 0.5 + 0.3 * normals(N, 1, seed=2)
Z, JITTER = X[::5], 1e-5
POINT = gilib.PointEstimate()


def linear(replicas=()):
    """Bayesian linear regression; the parameter is √3 times the weights."""
    return gilib.models.mlp(2, (), 1, posterior=POINT, replicas=replicas, dtype=D, generator=seeded())


def process(replicas=(), depth=1):
    """A sparse Gaussian process; the parameter is the whitened inducing outputs."""
    settings = {"inducing_points": Z, "replicas": replicas, "dtype": D, "jitter": JITTER}
    return gilib.models.deep_gp(2, 1, depth, posterior=POINT, kernel=KERNEL, **settings)


def fixed(net):
    """Hyper-parameters are not learned."""
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("scaled_weights" in name)
    return net


def white():
    """a(x) of the sparse process, `[N, M]`."""
    root = torch.linalg.cholesky(textbook(KERNEL, Z, Z) + JITTER * KERNEL.variance * torch.eye(len(Z)))
    return torch.linalg.solve_triangular(root, textbook(KERNEL, Z, X), upper=False).mT


FEATURES = {"linear": lambda: with_ones(X) / 3**0.5, "process": white}
NETWORKS = {"linear": linear, "process": process}


@dataclass(frozen=True)
class Seen(SGHMC):
    """Tells what became of it."""

    def begin(self, problem):
        running.append(super().begin(problem))
        return running[-1]


running = []


def train(net, rule, steps, *, likelihood=None, x=X, y=Y, **settings):
    settings = {"num_samples": 1, "progress": False} | settings
    likelihood = gilib.Gaussian(NOISE) if likelihood is None else likelihood
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def state(net):
    return next(p for name, p in net.named_parameters() if "scaled_weights" in name).detach()
