"""The search of the collapsed bound: where it ends, and where it goes back to."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import gilib
from gilib.training import Collapsed
from gilib.training.history import FAILED, STOOD_STILL
from gilib.training.rules.collapsed.rule import PATIENCE
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


def test_the_best_of_several_points_is_returned_to(running):
    start = [parameter.detach().clone() for parameter in running.parameters]
    seen = [([value + k for value in start], torch.tensor(loss)) for k, loss in enumerate((2.0, 1.0, 3.0))]
    running._return_to(seen)
    assert running.last == -1.0
    for parameter, value in zip(running.parameters, start, strict=True):
        assert torch.equal(parameter.detach(), value + 1)


def test_only_steps_in_a_row_end_the_search(running):
    """Those that gain less than the tolerance."""
    losses, idle = iter([1.0, 0.9999, 0.5, 0.4999, 0.4998, 0.3]), []
    running.search, running.idle, running.last = SimpleNamespace(step=lambda loss: next(losses)), 0, -2.0
    for _ in range(6):
        running._search(None)
        idle.append(running.idle)
    assert idle == [0, 1, 0, 1, 2, 0]


def test_a_search_that_failed_ends_the_training_and_says_so(running):
    running._return_to([(list(running.parameters), torch.tensor(1.0))])
    assert running.ended == FAILED and running.idle == PATIENCE


def test_a_training_ends_with_its_search(tmp_path):
    """And goes no further when it is asked again, from its file."""

    def fit():
        net, noise = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
        own = {"steps": 300, "rule": Collapsed(tolerance=1e-3), "num_samples": 1, "progress": False}
        return gilib.fit(net, noise, X, Y, checkpoint=tmp_path / "run.pt", **own)

    first, again = fit(), fit()
    assert len(first.elbo) < 100 and first.ended == again.ended == STOOD_STILL
    assert torch.equal(first.elbo, again.elbo) and again.resumed_at == len(first.elbo)
