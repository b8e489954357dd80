"""Generators of replicas: their state holds what is to come, also where noise is drawn ahead."""

import pytest
import torch

import gilib
from gilib import randomness
from gilib.randomness import ReplicaGenerators
from gilib.training import Checkpoint
from tests.support.trainings import SEEDS, R, X, Y, fit, model, same

CPU = torch.device("cpu")


@pytest.fixture
def ahead(monkeypatch):
    """As on an accelerator, five requests at a time."""
    init = ReplicaGenerators.__init__

    def in_blocks(self, seeds, device=None):
        init(self, seeds, device)
        self.block = 5

    monkeypatch.setattr(ReplicaGenerators, "__init__", in_blocks)


def requests(generators, *numbers):
    """Of two shapes, in turn."""
    shapes = [(2, len(generators.generators), 3), (4, len(generators.generators), 1, 2)]
    return [generators.normal(shapes[k % 2], torch.float64, CPU) for k in range(*numbers)]


@pytest.mark.parametrize("given", [0, 1, 5, 9, 10, 11, 20])
def test_the_state_holds_what_was_drawn_ahead(given, ahead):
    whole, part, again = (ReplicaGenerators(SEEDS) for _ in range(3))
    expected = requests(whole, given + 24)[given:]
    requests(part, given)
    again.set_state(part.get_state())
    for source in (part, again):  # asking for the state changes nothing
        found = requests(source, given, given + 24)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_replica_draws_what_one_alone_draws_ahead(ahead):
    together = requests(ReplicaGenerators(SEEDS), 12)
    for r, seed in enumerate(SEEDS):
        alone = requests(ReplicaGenerators([seed]), 12)
        assert all(torch.equal(a[:, r], b[:, 0]) for a, b in zip(together, alone, strict=True))


def test_a_large_block_is_shorter(ahead, monkeypatch):
    monkeypatch.setattr(randomness, "LARGEST", 13)  # two requests of six numbers
    generators = ReplicaGenerators(SEEDS)
    values = [generators.normal((2, R, 3), torch.float64, CPU) for _ in range(3)]
    own = torch.Generator().manual_seed(1)
    blocks = [torch.randn(2, 2, 3, generator=own, dtype=torch.float64) for _ in range(2)]
    for value, expected in zip(values, torch.cat(blocks), strict=False):
        assert torch.equal(value[:, 1], expected)


def test_a_training_goes_on_with_the_same_noise(ahead, tmp_path):
    straight, kept, resumed = (model((R,)) for _ in range(3))
    settings = {"x": X, "y": Y, "seed": SEEDS, "rule": gilib.Adam()}
    whole = fit(straight, steps=12, **settings)
    settings["checkpoint"] = Checkpoint(tmp_path / "run", every=2)
    assert torch.equal(fit(kept, steps=8, **settings).elbo, whole.elbo[:8])  # writing changes nothing
    history = fit(resumed, steps=12, **settings)
    assert history.resumed_at == 8 and torch.equal(history.elbo, whole.elbo) and same(resumed, straight)
