"""Work in pieces: the same bound and gradient for every network, and less memory held at a time."""

import subprocess
import sys

import pytest
import torch
from torch import nn

import gilib
from gilib.linalg import blocks, factor
from tests.support import D, assert_equal, normals, seeded, small_net
from tests.support.benchmarks import BENCHMARKS, load

SAMPLES, POINTS, BATCH = 5, 11, 4
POSTERIORS = {
    "fac": gilib.Factorised(),
    "rand": gilib.FromPrior(),
    "fac→gi": (gilib.Factorised(), gilib.GlobalInducing(precision="per_output")),
    **{f"li-{kind}": gilib.LocalInducing(precision=kind) for kind in ("shared", "per_output", "full")},
    **{f"gi-{kind}": gilib.GlobalInducing(precision=kind) for kind in ("shared", "per_output", "full")},
    "gi-few": gilib.GlobalInducing(precision="per_output"),
}


def bound_and_gradient(net, replicas):
    """For a minibatch, of a network with parameters of its own in every replica."""
    x, y = normals(*replicas, POINTS, 2, seed=3), normals(*replicas, POINTS, 2, seed=4)
    noise = net.base_noise(SAMPLES, seeded(5))
    x, y = x[..., :BATCH, :], y[..., :BATCH, :]
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=replicas)
    bound = gilib.elbo(net.draw(noise=noise), likelihood, x, y, num_data=POINTS)
    parameters = [p for p in (*net.parameters(), *likelihood.parameters()) if p.requires_grad]
    return bound, *torch.autograd.grad(bound.sum(), parameters)


@pytest.mark.parametrize(
    ("name", "replicas", "matrices"),
    [(name, (3,), 3) for name in POSTERIORS]
    + [("gi-per_output", (), 0), ("gi-full", (2, 2), 7), ("li-per_output", (), 7), ("gi-shared", (2, 2), 0)],
)
def test_pieces_change_neither_bound_nor_gradient(name, replicas, matrices, monkeypatch):
    """One matrix of the hidden layer at a time, three, seven: none divides the five samples."""
    points = 2 if name == "gi-few" else 9
    net = small_net(POSTERIORS[name], hidden=(6, 6), points=points, replicas=replicas, activation=nn.ReLU)
    whole = bound_and_gradient(net, replicas)
    monkeypatch.setattr(factor, "MIN_MATRICES", 1)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2 * D.itemsize * matrices * 7**2)
    for part, expected in zip(bound_and_gradient(net, replicas), whole, strict=True):
        assert_equal(part, expected, 1e-10 * max(1.0, float(expected.detach().abs().max())))


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
print(sum(training_step.faults_of(step, 4)) // 4)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator is meant")
def test_a_step_asks_for_few_pages():
    """In pieces, of memory that is kept; at once, of memory that is given back, it asks for 8000."""
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], cwd=BENCHMARKS, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1500
