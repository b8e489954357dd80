"""A small sparse Gaussian process, its bound by dense algebra, and its training by `Collapsed`."""

import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.training import Collapsed
from tests.support import D, normals

X = normals(30, 2, seed=1)
MEAN = torch.sin(2 * X).sum(1, keepdim=True) * torch.tensor([[1.0, -0.5]], dtype=D)
Y = MEAN + 0.1 * normals(30, 2, seed=2)


def sparse(points=X[::5], **settings):
    settings = {"inducing_points": points, "dtype": D, "jitter": 0.0} | settings
    return gilib.models.sparse_gp(2, 2, **settings)


def kernel_of(net):
    return next(iter(net.layers)).hyperparameters()


def titsias(net, noises):
    """Σ_o log N(y_o; 0, Q + σ_o²) - tr(K - Q) / (2σ_o²), Q = K_xz K_zz⁻¹ K_zx; one noise, or one each."""
    kernel, z = kernel_of(net), next(iter(net.layers)).inducing_inputs.detach()
    cross = kernel.cross(z, X)
    q = cross.mT @ torch.linalg.solve(kernel.gram(z), cross)
    trace = (kernel.gram(X) - q).diagonal().sum()
    total = torch.zeros((), dtype=D)
    for column, noise in zip(Y.mT, torch.as_tensor(noises, dtype=D).expand(2), strict=True):
        dist = MultivariateNormal(torch.zeros(30, dtype=D), q + noise * torch.eye(30, dtype=D))
        total = total + dist.log_prob(column) - trace / (2 * noise)
    return total


def train(net, likelihood, x=X, y=Y, steps=60, **options):
    options = {"rule": Collapsed(), "num_samples": 1, "progress": False} | options
    return gilib.fit(net, likelihood, x, y, steps=steps, **options)


def finite_difference(function, parameter, place, step):
    """The slope of a function without arguments in one entry of a parameter."""
    values = []
    with torch.no_grad():
        for change in (step, -2 * step):
            parameter.view(-1)[place] += change
            values.append(float(function()))
        parameter.view(-1)[place] += step
    return (values[0] - values[1]) / (2 * step)
