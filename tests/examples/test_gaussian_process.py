"""A Gaussian process as a layer of the reader's own: the engine's algebra, whitened, and the exact evidence.

The inducing outputs are u = R w with K = R Rᵀ and w ~ N(0, Id), so that they are weights with features R. The
draw is the function x ↦ k(x, Z) K⁻¹ u; the estimate adds, point by point, what u leaves open.
"""

from dataclasses import dataclass

import pytest
import torch
from torch.distributions import MultivariateNormal
from torch.linalg import solve_triangular

import gilib
from gilib.draws import Draw, Estimate, FixedFunction
from gilib.layers import Layer
from gilib.linalg import ScaledIdentity, SymmetricOperator
from gilib.randomness import NoiseSize
from gilib.sites import DenseWeights
from gilib.training.objective import preferred_estimator
from tests.support import D, assert_equal, normals, seeded

LENGTHSCALE, AMPLITUDE, NOISE_VARIANCE = 0.8, 1.7, 0.09


def kernel(a, b):
    """A squared-exponential kernel, `[..., N, N']`."""
    return AMPLITUDE * torch.exp(-0.5 * torch.cdist(a, b).square() / LENGTHSCALE**2)


@dataclass(frozen=True)
class Process:
    """x ↦ k(x, Z) R⁻ᵀ w, plus what is left of the variance times noise if there is any."""

    inputs: torch.Tensor
    root: torch.Tensor
    weights: torch.Tensor
    noise: torch.Tensor | None = None

    def __call__(self, x):
        white = solve_triangular(self.root, kernel(self.inputs, x), upper=False)  # [..., M, N]
        mean = white.mT @ self.weights
        if self.noise is None:
            return mean
        left = (AMPLITUDE - white.square().sum(-2)).clamp_min(0.0)
        return mean + left.sqrt()[..., None] * self.noise


class GP(Layer):
    """A Gaussian process with global inducing points, built from public parts alone."""

    needs_inducing = has_weights = True
    prefers_estimate = True

    def __init__(self, inputs, outputs, posterior=None, jitter=0.0):
        super().__init__()
        self.inputs, self.outputs, self.jitter = inputs, outputs, jitter
        self.posterior = posterior or gilib.GlobalInducing()

    def build(self, shape, context):
        self.replicas = context.replicas
        self.weights = self.posterior.build(DenseWeights(context.num_inducing, self.outputs), context)
        self.starts_at_targets = self.weights.starts_at_targets
        self.noise_size = self.weights.noise_size
        return (self.outputs,)

    @property
    def estimate_size(self):
        return NoiseSize(self.noise_size, self.outputs)

    def _draw(self, inducing, noise):
        identity = torch.eye(inducing.shape[-2], dtype=inducing.dtype)
        root = torch.linalg.cholesky(kernel(inducing, inducing) + self.jitter * identity)
        prior = ScaledIdentity(torch.ones((), dtype=inducing.dtype), inducing.shape[-2])
        weights, log_pq = self.weights.draw(root, prior, noise)
        return root, weights, log_pq

    def draw_from_noise(self, inducing, noise):
        root, weights, log_pq = self._draw(inducing, noise)
        return Draw(Process(inducing, root, weights), log_pq, root @ weights)

    def estimate_from_noise(self, inducing, noise):
        root, weights, log_pq = self._draw(inducing, noise.draw)
        return Estimate(Process(inducing, root, weights, noise.points), log_pq, root @ weights)

    def config(self):
        return {"inputs": self.inputs, "outputs": self.outputs}


@dataclass(frozen=True)
class Covariance(SymmetricOperator):
    """P = K⁻¹, known by the factor of K = R Rᵀ."""

    root: torch.Tensor

    @property
    def size(self):
        return self.root.shape[-1]

    def dense(self):
        return torch.cholesky_inverse(self.root)

    def diagonal(self):
        return self.dense().diagonal(dim1=-2, dim2=-1)

    def log_det(self):
        return -2 * self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def to(self, dtype):
        return Covariance(self.root.to(dtype))

    def quadratic(self, weights):
        return solve_triangular(self.root, weights, upper=False).square().sum((-2, -1))

    def colour(self, noise):
        return self.root @ noise

    def pull_back(self, features):
        return features @ self.root


def evidence(x, y):
    """Log P(y) of exact regression, summed over the outputs."""
    covariance = kernel(x, x) + NOISE_VARIANCE * torch.eye(len(x), dtype=D)
    return sum(MultivariateNormal(torch.zeros(len(x), dtype=D), covariance).log_prob(c) for c in y.mT)


@pytest.mark.parametrize("precision", ["shared", "per_output", "full"])
def test_every_draw_and_every_estimate_has_the_exact_evidence(precision):
    """U = X, v = y and the true noise: nothing is left to infer."""
    x, y = normals(7, 2, seed=1), normals(7, 3, seed=2)
    spec = gilib.GlobalInducing(precision, log_precision=-float(torch.tensor(NOISE_VARIANCE, dtype=D).log()))
    net = gilib.Network(x, [GP(2, 3, spec)], pseudo_outputs=y, input_shape=(2,))
    likelihood = gilib.Gaussian(NOISE_VARIANCE)
    for drawn in (net.draw(5, generator=seeded()), net.estimate(5, 7, generator=seeded())):
        bounds = gilib.elbo(drawn, likelihood, x, y, num_data=7, reduction="none").detach()
        assert_equal(bounds, evidence(x, y).expand(5), 1e-6 if isinstance(drawn, Estimate) else 1e-9)


@pytest.mark.parametrize("precision", ["shared", "per_output", "full"])
def test_whitened_and_unwhitened_posteriors_agree(precision):
    """Features R and prior N(0, Id), against Φ = Id and prior covariance K by the other system."""
    z, pseudo, noise = normals(6, 2, seed=3), normals(6, 2, seed=4), normals(50, 6, 2, seed=5)
    root = torch.linalg.cholesky(kernel(z, z))
    module = gilib.GlobalInducing(precision).build(
        DenseWeights(6, 2), gilib.BuildContext(6, pseudo_outputs=pseudo, dtype=D)
    )
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * normals(*parameter.shape, seed=6)
    white = module.condition(root, ScaledIdentity(torch.ones((), dtype=D), 6))
    observed = module.pseudo.observed(D)
    plain = gilib.regress_dual(*observed.whitened(torch.eye(6, dtype=D)), Covariance(root))
    assert_equal((root @ white.mean).detach(), plain.mean.detach(), 1e-10)
    assert_equal((root @ white.covariance @ root.mT).detach(), plain.covariance.detach(), 1e-10)
    weights, log_pq = white.draw(noise)
    u = root @ weights
    log_p = gilib.regression.prior_log_prob(u, Covariance(root), 2)
    assert_equal(log_pq.detach(), (log_p - plain.log_prob(u)).detach(), 1e-8)


def test_it_trains_in_a_deep_network_with_weights_and_replicas():
    """Two processes and a dense layer: gradients everywhere, U passed on as u, a better bound."""
    x = torch.linspace(-2, 2, 24, dtype=D)[:, None]
    y = torch.sin(3 * x) + 0.1 * normals(24, 1, seed=7)
    layers = [GP(1, 2, jitter=1e-9), gilib.Residual([GP(2, 2, jitter=1e-9)]), gilib.Linear(2, 1)]
    net = gilib.Network(
        x[::3], layers, pseudo_outputs=y[::3], input_shape=(1,), replicas=(2,), generator=seeded()
    )
    draw = net.draw(3, generator=seeded())
    assert_equal(draw.inducing_outputs.detach(), draw(net.inducing_points).detach(), 1e-5)
    steps = gilib.record(draw.function, x).steps
    assert [isinstance(step.function, Process) for step in steps] == [True, True, False]
    assert not any(isinstance(step.function, FixedFunction) for step in steps)
    assert preferred_estimator(net) == "pointwise"  # what fit then trains on
    history = gilib.fit(net, gilib.Gaussian(0.05, replicas=(2,)), x, y, steps=60, seed=0, progress=False)
    assert bool((history.elbo[-5:].mean(0) > history.elbo[:5].mean(0) + 0.5).all())
