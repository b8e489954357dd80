"""The search of the collapsed bound: where it ends, and where it goes back to."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import gilib
from gilib.training import Collapsed
from gilib.training.history import STOOD_STILL
from tests.training.test_collapsed import X, Y, sparse


@pytest.fixture
def running():
    """What a training of one step has left."""
    held = []

    @dataclass(frozen=True)
    class Seen(Collapsed):
        def begin(self, problem):
            held.append(super().begin(problem))
            return held[-1]

    net, noise = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
    gilib.fit(net, noise, X, Y, steps=1, rule=Seen(tolerance=1e-3), num_samples=1, progress=False)
    return held[0]


def test_only_steps_in_a_row_end_the_search(running):
    """Those that gain less than the tolerance."""
    losses, idle = iter([1.0, 0.9999, 0.5, 0.4999, 0.4998, 0.3]), []
    running.search, running.idle, running.last = SimpleNamespace(step=lambda loss: next(losses)), 0, -2.0
    for _ in range(6):
        running._search(None)
        idle.append(running.idle)
    assert idle == [0, 1, 0, 1, 2, 0]


def test_a_training_ends_with_its_search(tmp_path):
    """And goes no further when it is asked again, from its file."""

    def fit():
        net, noise = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
        own = {"steps": 300, "rule": Collapsed(tolerance=1e-3), "num_samples": 1, "progress": False}
        return gilib.fit(net, noise, X, Y, checkpoint=tmp_path / "run.pt", **own)

    first, again = fit(), fit()
    assert len(first.elbo) < 100 and first.ended == again.ended == STOOD_STILL
    assert torch.equal(first.elbo, again.elbo) and again.resumed_at == len(first.elbo)
