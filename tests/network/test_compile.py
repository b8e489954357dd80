"""Draws and estimates are captured whole by torch.compile: no graph break, the same values and gradients."""

import pytest
import torch
from torch import nn

import gilib
from gilib.layers import Conv2d, InducingBatchNorm, Linear, Sum
from gilib.posteriors import Conjugate, Dropout
from gilib.randomness import Noise
from gilib.structured import FullyCoupled
from tests.support import PRIORS, assert_equal, normals, processes, seeded, shaken, small_net

X, IMAGES = normals(4, 2, seed=1), normals(3, 2, 4, 4)
GLOBAL, LOCAL, FREE = gilib.GlobalInducing("full"), gilib.LocalInducing(), gilib.FreeGaussian(None, 0.5)


def nested():
    """With so few inducing points that the smaller system is solved."""
    branches = [gilib.Sequential([Linear(2, 2), nn.Tanh()]), nn.Identity()]
    layers = [gilib.Residual([Linear(2, 2), nn.Tanh()]), Sum(branches), Linear(2, 2)]
    return gilib.Network(normals(1, 2), layers, generator=seeded())


def conjugate():
    """With the moments of its inputs kept."""
    net, rule = small_net(Conjugate()), gilib.training.Bali(keep_moments=True)
    x, noise = normals(120, 2), gilib.Gaussian(1.0, learn=True)
    gilib.fit(net, noise, x, x.sin(), steps=3, num_samples=1, rule=rule, progress=False)
    return net


def images():
    """A convolution with a spatial prior and a stride, pooling, and what takes statistics of the pooled."""
    layers = [Conv2d(2, 3, 3, prior=gilib.SpatialIWPrior(), stride=2), nn.MaxPool2d(2), InducingBatchNorm()]
    layers += [nn.ReLU(), nn.Flatten(), Linear(3, 2, gilib.Factorised())]
    return gilib.Network(IMAGES, layers, generator=seeded())


def structured():
    settings = {"inducing_points": X[:3], "width": 1, "num_features": 8, "generator": seeded()}
    return shaken(gilib.models.structured_gp(2, 2, 2, family=FullyCoupled(), **settings), 0.2)


DRAWS = {
    "local, full precision": lambda: small_net((LOCAL, GLOBAL), replicas=(2,)),
    "conjugate": conjugate,
    "nested": nested,
    "processes": lambda: processes.deep([GLOBAL, LOCAL, FREE], 3),
    "images": images,
}
ESTIMATES = {
    "factorised": lambda: small_net((gilib.Factorised(), gilib.GlobalInducing())),
    "dropout": lambda: small_net((gilib.PointEstimate(), Dropout(0.3))),
    "processes": lambda: processes.deep([LOCAL, FREE]),
    "structured": structured,
}


@pytest.mark.parametrize(
    ("face", "name"), [*(("draw", name) for name in DRAWS), *(("estimate", name) for name in ESTIMATES)]
)
def test_a_draw_or_the_bound_of_an_estimate_is_one_graph(face, name):
    net = (DRAWS if face == "draw" else ESTIMATES)[name]()
    x, parameters, likelihood = IMAGES if name == "images" else X, list(net.parameters()), gilib.Gaussian(0.3)
    y = normals(len(x), 2, seed=2)
    noise = [net.base_noise(3, seeded(1))] if face == "draw" else net.estimate_noise(3, 4, seeded(1))

    def bound(drawn):
        return gilib.elbo(drawn, likelihood, x, y, num_data=9).sum()

    def function(*noise):
        return net.draw(noise=noise[0]) if face == "draw" else bound(net.estimate(noise=Noise(*noise)))

    torch.compiler.reset()
    values = [function(*noise), torch.compile(function, fullgraph=True, backend="eager")(*noise)]
    values = [bound(value) if face == "draw" else value for value in values]
    assert_equal(values[1].detach(), values[0].detach(), 1e-10)
    if parameters:
        for ours, theirs in zip(*(torch.autograd.grad(value, parameters) for value in values), strict=True):
            assert_equal(ours, theirs, 1e-10)


def test_priors_with_a_normal_for_a_scale_are_captured_too():
    net = small_net(gilib.Factorised(), PRIORS["scale"], hidden=())
    noise = net.base_noise(3, seeded(1))
    torch.compiler.reset()
    found = torch.compile(net.draw, backend="eager")(noise=noise)
    assert_equal(found.log_pq.detach(), net.draw(noise=noise).log_pq.detach(), 1e-12)
