"""How a step runs: captured whole by torch.compile, without reading anything back, in little memory.

`bool(t)`, `t.item()` and the like make an accelerator's queue wait, and fail on meta tensors.
"""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

import gilib
from gilib import models, projection
from gilib.layers import Conv2d, InducingBatchNorm, Linear, Sum
from gilib.linalg import blocks, exponential, triangular
from gilib.posteriors import Conjugate, Dropout
from gilib.randomness import Noise
from gilib.structured import FullyCoupled
from gilib.training import ReplicaAdam
from gilib.training.rules.sghmc import Coordinates, chosen
from tests.support import PRIORS, assert_equal, normals, processes, seeded, shaken, small_net
from tests.support.benchmarks import BENCHMARKS, load

X, IMAGES = normals(4, 2, seed=1), normals(3, 2, 4, 4)
GLOBAL, LOCAL, FREE = gilib.GlobalInducing("full"), gilib.LocalInducing(), gilib.FreeGaussian(None, 0.5)


def nested():
    """With so few inducing points that the smaller system is solved."""
    branches = [gilib.Sequential([Linear(2, 2), nn.Tanh()]), nn.Identity()]
    layers = [gilib.Residual([Linear(2, 2), nn.Tanh()]), Sum(branches), Linear(2, 2)]
    return gilib.Network(normals(1, 2), layers, generator=seeded())


def conjugate():
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


R, N = 3, 5
META = torch.device("meta")
POSTERIORS = {
    "gi": gilib.GlobalInducing(precision="per_output"),
    "gi-full": gilib.GlobalInducing(precision="full"),
    "li": gilib.LocalInducing(num_inducing=4, precision="per_output"),
    "fac→gi": (gilib.Factorised(), gilib.GlobalInducing(precision="per_output")),
}


def on_meta(posterior, prior):
    net = small_net(posterior, prior, points=4, replicas=(R,)).to(META)
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=(R,)).to(META)
    rates = {
        name: (p, [0.1, 0.2, 0.3]) for name, p in [*net.named_parameters(), ("n", *likelihood.parameters())]
    }
    return net, likelihood, rates


@pytest.mark.parametrize(
    ("name", "prior"), [("gi", "neal"), ("gi-full", "scale"), ("li", "neal"), ("fac→gi", "spatial")]
)
def test_draw_bound_and_gradient(name, prior):
    net, likelihood, rates = on_meta(POSTERIORS[name], PRIORS[prior])
    x, y = (torch.empty(R, N, 2, dtype=torch.float64, device=META) for _ in range(2))
    noise = torch.empty(2, R, net.noise_size, dtype=torch.float64, device=META)
    bound = gilib.elbo(net.draw(noise=noise), likelihood, x, y, num_data=N)
    gradients = torch.autograd.grad(-bound.sum(), [p for p, _ in rates.values()], materialize_grads=True)
    assert bound.shape == (R,) and all(g.device == META for g in gradients)


def test_a_step_of_sghmc():
    own = Coordinates.at_rest(torch.empty(R, 4, 2, device=META))
    slope, noise = torch.empty(2, R, 4, 2, device=META)
    own.adapt(slope)
    assert own.pushed(slope, noise, 0.1, 0.5).device == META
    (state,) = chosen([torch.empty(7, R, 4, 2, device=META)], 5, torch.empty(R, device=META))
    assert state.shape == (R, 4, 2) and state.device == META


def test_the_optimiser_reads_nothing(monkeypatch):
    """On the CPU: a read would go through one of these."""
    values = torch.nn.Parameter(torch.ones(R, 4))
    optimiser = ReplicaAdam({"values": (values, [0.1, 0.2, 0.3])}, R)

    def forbidden(*_):
        raise AssertionError("the optimiser read a tensor")

    for name in ("__bool__", "__float__", "__int__", "item", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    optimiser.advance()
    gradients = torch.autograd.grad(values.square().sum(), [values])
    optimiser.update(gradients, torch.ones(R, dtype=torch.bool))


def test_a_step_holds_two_batches_of_precisions_at_a_time(monkeypatch):
    """With all else less than four; made all at once they take more than six."""
    training_step, measures = load("training_step"), load("measures")
    batch = 4 * training_step.SAMPLES * training_step.WIDTH * (training_step.WIDTH + 1) ** 2
    step = training_step.stepper(training_step.gilib_elbo, "toy")
    step()
    in_pieces = measures.peak_memory(step)[0]
    assert in_pieces < 4 * batch
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**60)
    assert measures.peak_memory(step)[0] > 1.5 * in_pieces


FAULTS = """
import torch, training_step
from gilib.recipes.base import keep_freed_memory
torch.set_num_threads(1)
keep_freed_memory()
step = training_step.stepper(training_step.gilib_elbo, "toy")
print(max(training_step.faults_of(step, 1)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is meant")
def test_a_step_asks_for_few_pages():
    """In pieces, of memory that is kept; at once, of memory that is given back, it asks for 8000."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1500


COUNT, M = 30, 6
POINTS = normals(COUNT, 3, seed=1).float()
TARGETS = POINTS.sum(1, keepdim=True).sin()
NETWORKS = {
    "global inducing": lambda: models.mlp(3, (8,), 1, inducing_points=POINTS[:12]),
    "sparse": lambda: models.sparse_gp(3, 1, inducing_points=POINTS[:M]),
    "deep": lambda: models.deep_gp(3, 1, 2, inducing_points=POINTS[:M], generator=seeded(1)),
    "doubly stochastic": lambda: models.deep_gp(
        3, 1, 2, inducing_points=POINTS[:M], posterior=gilib.FreeGaussian()
    ),
    "structured": lambda: models.structured_gp(3, 1, 2, inducing_points=POINTS[:M], width=2),
}


@pytest.fixture
def by_hand(monkeypatch):
    """Every operation with a gradient of ours is taken, whatever the size."""
    monkeypatch.setattr(projection, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(exponential, "MIN_VALUES", 0)
    monkeypatch.setattr(triangular, "MIN_ENTRIES", 0)
    monkeypatch.setattr(triangular, "MIN_ROWS", 0)


class Bound(nn.Module):
    def __init__(self, net, estimate):
        super().__init__()
        self.net, self.noise = net, (net.estimate_noise(2, COUNT) if estimate else net.base_noise(2))
        self.functions = net.estimate if estimate else net.draw

    def forward(self):
        drawn = self.functions(noise=self.noise)
        return gilib.elbo(drawn, gilib.Gaussian(0.1), POINTS, TARGETS, num_data=COUNT, per_point=True).mean()


@pytest.mark.parametrize(
    ("kind", "estimate"), [*((kind, True) for kind in NETWORKS), ("deep", False), ("structured", False)]
)
def test_transforms_by_each_parameter_alone(kind, estimate, by_hand):
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
