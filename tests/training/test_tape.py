"""Tapes: operations are repeated in the memory that they had; other decisions leave everything as it was."""

import pytest
import torch

from gilib.training.gradients.tape import Tape
from tests.support import normals, seeded

X = normals(4, 3, seed=1)


def check(function, *changes, start=X):
    """Repeated at other values a function of one tensor gives what it gives when it is called."""
    x, results = start.clone(), []
    tape = Tape(lambda: results.append(function(x)))
    for change in changes or (2.0, -0.5):
        x.copy_(start * change + 0.25)
        assert tape()
        torch.testing.assert_close(results[0], function(x), rtol=0, atol=0)
    return tape


def gradient(x):
    w = torch.ones(3, dtype=x.dtype, requires_grad=True)
    return torch.autograd.grad((x @ w).square().sum(), w)[0]


def filled(x):
    total = torch.zeros_like(x)
    for row in x:
        total += row
    return total


def partly(x):
    memory = x.new_empty(2, 4, 3)
    memory[0], memory[1] = x, 2 * x
    return memory


def normalised(x):
    mean, variance = x.new_zeros(3), x.new_ones(3)
    found, *_ = torch.ops.aten._native_batch_norm_legit(x, None, None, mean, variance, True, 0.5, 1e-5)
    return torch.cat([found, mean[None], variance[None]])


FUNCTIONS = {
    "arithmetic": lambda x: (x * 2 + 1).exp() / 3,
    "views": lambda x: x.mT.reshape(-1)[2:] * 2,
    "a view alone": lambda x: x.mT[1],
    "results of several kinds": lambda x: torch.linalg.cholesky_ex(x @ x.mT + 50 * torch.eye(4).to(x))[0],
    "constants": lambda x: x + torch.ones(3, dtype=x.dtype) + torch.eye(4, 3, dtype=x.dtype),
    "constants that are written": filled,
    "memory that is filled": partly,
    "copies": lambda x: x.float().double().clone().add_(1),
    "no memory of one's own": lambda x: x.where(x > 0, -1.0),
    "lists": lambda x: torch.cat(torch._foreach_mul([x, x + 1], 2.0)),
    "a gradient": gradient,
    "a product of samples": lambda x: torch.einsum("ij,kj->ik", x, x),
    "an inference": lambda x: torch.inference_mode()(lambda: x.matmul(x.mT).sum())(),
    "a vmap": lambda x: torch.vmap(lambda row: row.square().sum())(x),
    "an index": lambda x: x.index_select(0, torch.tensor([2, 0])),
    "changes in place and results": normalised,
    "batch normalisation": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "bits": lambda x: (x > 0) & (x < 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_repeated(name):
    check(FUNCTIONS[name])


def test_views_and_constants_are_not_repeated():
    assert len(check(lambda x: x.mT.reshape(-1)[2:].view(2, 5) * torch.ones(5, dtype=x.dtype)).calls) == 2


def test_random_numbers_are_drawn_again():
    generator, drawn = seeded(), []
    tape, again = Tape(lambda: drawn.append(torch.randn(3, generator=generator))), seeded()
    assert torch.equal(drawn[0], torch.randn(3, generator=again))
    assert tape() and torch.equal(drawn[0], torch.randn(3, generator=again))


def test_another_decision_leaves_everything_as_it_was():
    x, state, counts = X.clone(), torch.zeros(4, 3, dtype=X.dtype), torch.zeros(2, dtype=torch.long)

    def step():
        counts[0] += 1
        scaled = x * 2
        scaled += 1
        if bool((scaled.sum() > 0).any()):
            state.add_(scaled)
        counts[1] += 1

    x.fill_(1.0)
    tape = Tape(step)
    assert tape() and counts.tolist() == [2, 2] and float(state[0, 0]) == 6.0
    x.fill_(-1.0)
    assert not tape() and counts.tolist() == [2, 2] and float(state[0, 0]) == 6.0
    x.fill_(2.0)
    assert tape() and counts.tolist() == [3, 3] and float(state[0, 0]) == 11.0
    assert all(tensor.data_ptr() == counts.data_ptr() for tensor in tape.exposed)  # nothing is copied in vain


def test_memory_of_results_is_not_given_away():
    """What was freed when the step was over would be overwritten."""
    x, results = X.clone(), []
    tape = Tape(lambda: results.append((x * 2 + 1).exp().sum()))
    others = [torch.full((4, 3), 7.0, dtype=X.dtype) for _ in range(50)]
    assert tape() and all(bool((other == 7.0).all()) for other in others)
