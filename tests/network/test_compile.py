"""A draw and an estimate are captured whole by torch.compile: no graph break, the same numbers."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import Sum
from tests.support import PRIORS, assert_equal, normals, processes, seeded, small_net

X = normals(4, 2, seed=1)


def nested():
    """With so few inducing points that the smaller system is solved."""
    branches = [gilib.Sequential([gilib.Linear(2, 2), nn.Tanh()]), nn.Identity()]
    layers = [gilib.Residual([gilib.Linear(2, 2), nn.Tanh()]), Sum(branches), gilib.Linear(2, 2)]
    return gilib.Network(normals(1, 2), layers, generator=seeded())


def conjugate():
    """With the moments of its inputs kept."""
    net, rule = small_net(gilib.posteriors.Conjugate()), gilib.training.Bali(keep_moments=True)
    x, noise = normals(120, 2), gilib.Gaussian(1.0, learn=True)
    gilib.fit(net, noise, x, x.sin(), steps=3, num_samples=1, rule=rule, progress=False)
    return net


KINDS = [gilib.GlobalInducing("full"), gilib.LocalInducing(), gilib.FreeGaussian(initial_scale=0.5)]
NETWORKS = {
    "local, full precision": lambda: small_net(
        (gilib.LocalInducing(), gilib.GlobalInducing("full")), replicas=(2,)
    ),
    "factorised": lambda: small_net((gilib.Factorised(), gilib.GlobalInducing())),
    "conjugate, point": lambda: small_net((gilib.posteriors.Conjugate(), gilib.PointEstimate())),
    "conjugate, trained": conjugate,
    "dropout": lambda: small_net(gilib.posteriors.Dropout(0.3)),
    "nested": nested,
    "processes": lambda: processes.deep(KINDS, 3),
}


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "factorised"])
def test_a_draw_is_one_graph(name):
    net = NETWORKS[name]()
    noise = net.base_noise(3, seeded(1))
    wanted = net.draw(noise=noise)
    torch.compiler.reset()
    draw = torch.compile(net.draw, fullgraph=True, backend="eager")
    found = draw(noise=noise)
    assert_equal(found(X).detach(), wanted(X).detach(), 1e-12)
    assert_equal(found.log_pq.detach(), wanted.log_pq.detach(), 1e-12)


@pytest.mark.parametrize("name", ["factorised", "dropout", "processes"])
def test_a_bound_and_its_gradient_are_one_graph(name):
    net, y = NETWORKS[name](), normals(4, 2, seed=2)
    likelihood = gilib.Gaussian(0.3)
    noise = net.estimate_noise(3, 4, seeded(1))

    def bound(noise):
        return gilib.elbo(net.estimate(noise=noise), likelihood, X, y, num_data=9)

    wanted = torch.autograd.grad(bound(noise), list(net.parameters()))
    torch.compiler.reset()
    compiled = torch.compile(bound, fullgraph=True, backend="eager")
    found = torch.autograd.grad(compiled(noise), list(net.parameters()))
    for ours, theirs in zip(found, wanted, strict=True):
        assert_equal(ours, theirs, 1e-12)


@pytest.mark.slow
def test_a_draw_of_images_is_one_graph():
    """Convolutions with a spatial prior and a stride, both normalised, and pooling."""
    images, norm = normals(3, 2, 4, 4), gilib.layers.InducingBatchNorm
    first = gilib.Conv2d(2, 2, 3, prior=gilib.SpatialIWPrior())
    convolutions = [first, norm(), nn.MaxPool2d(2), gilib.Conv2d(2, 3, 3, stride=2), norm(), nn.ReLU()]
    net = gilib.Network(images, [*convolutions, nn.Flatten(), gilib.Linear(3, 2)], generator=seeded())
    noise = net.base_noise(2, seeded(1))
    torch.compiler.reset()
    found = torch.compile(net.draw, fullgraph=True, backend="eager")(noise=noise)
    assert_equal(found(images).detach(), net.draw(noise=noise)(images).detach(), 1e-10)


def test_priors_with_a_normal_for_a_scale_are_captured_too():
    net = small_net(gilib.Factorised(), PRIORS["scale"], hidden=())
    noise = net.base_noise(3, seeded(1))
    wanted = net.draw(noise=noise)
    torch.compiler.reset()
    found = torch.compile(net.draw, backend="eager")(noise=noise)
    assert_equal(found.log_pq.detach(), wanted.log_pq.detach(), 1e-12)
