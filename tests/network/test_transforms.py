"""`torch.func` transforms of bounds, by each parameter alone, with operations of ours taken at any size."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import gilib
from gilib import models, projection
from gilib.linalg import exponential, triangular
from tests.support import assert_equal, normals, seeded

N, M = 30, 6
X = normals(N, 3, seed=1).float()
Y = X.sum(1, keepdim=True).sin()
FREE = gilib.posteriors.FreeGaussian()
NETWORKS = {
    "global inducing": lambda: models.mlp(3, (8,), 1, inducing_points=X[:12]),
    "sparse": lambda: models.sparse_gp(3, 1, inducing_points=X[:M]),
    "deep": lambda: models.deep_gp(3, 1, 2, inducing_points=X[:M], generator=seeded(1)),
    "doubly stochastic": lambda: models.deep_gp(3, 1, 2, inducing_points=X[:M], posterior=FREE),
    "structured": lambda: models.structured_gp(3, 1, 2, inducing_points=X[:M], width=2),
}


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    """Every operation with a gradient of ours is taken, whatever the size."""
    monkeypatch.setattr(projection, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(exponential, "MIN_VALUES", 0)
    monkeypatch.setattr(triangular, "MIN_ENTRIES", 0)
    monkeypatch.setattr(triangular, "MIN_ROWS", 0)


class Bound(nn.Module):
    def __init__(self, net, estimate):
        super().__init__()
        self.net, self.noise = net, (net.estimate_noise(2, N) if estimate else net.base_noise(2))
        self.functions = net.estimate if estimate else net.draw

    def forward(self):
        drawn = self.functions(noise=self.noise)
        return gilib.elbo(drawn, gilib.Gaussian(0.1), X, Y, num_data=N, per_point=True).mean()


@pytest.mark.parametrize(
    ("kind", "estimate"), [*((kind, True) for kind in NETWORKS), ("deep", False), ("structured", False)]
)
def test_by_each_parameter_alone(kind, estimate):
    net = NETWORKS[kind]()
    bound = Bound(net, estimate)
    value = bound()
    for name, parameter in net.named_parameters():
        (expected,) = torch.autograd.grad(value, [parameter], retain_graph=True, allow_unused=True)
        expected = torch.zeros_like(parameter) if expected is None else expected
        start = parameter.detach()

        def function(given, name=name):
            return functional_call(bound, {f"net.{name}": given}, ())

        twice = torch.stack([start, start])
        allowed = 2e-3 * float(expected.abs().max()) + 1e-5
        for found in (grad(function)(start), *vmap(grad(function))(twice)):
            assert float((found - expected).detach().abs().max()) <= allowed, name
        assert_equal(vmap(function)(twice), value.detach().expand(2), 1e-3)
