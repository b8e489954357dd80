"""Two processes that share every minibatch end where one process ends."""

import re

import pytest
import torch

from tests.support import assert_equal, forked
from tests.support.sharing import CASES, STEPS, WORLD, fit, mlp, work

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where two processes have left what they found."""
    path = tmp_path_factory.mktemp("parallel")
    both = [forked.start(work, rank, path) for rank in range(WORLD)]
    for process in both:
        process.join()
        assert process.exitcode == 0
    return path


@pytest.fixture(scope="module")
def found(folder):
    return [torch.load(folder / f"found-{rank}") for rank in range(WORLD)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_end_where_one_does(name, found):
    alone, tolerance = CASES[name](), 1e-3 if name == "two dtypes" else 1e-10
    for key, value in alone.items():
        first, second = (results[name][key] for results in found)
        if value is None:
            assert first is second is None
        else:
            assert torch.equal(first.nan_to_num(), second.nan_to_num())
            torch.testing.assert_close(first, value, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert len(alone["elbo"]) == (3 if name == "resnet" else STEPS)


def test_a_replica_left_out_is_left_out_by_all(found):
    assert [int(at) for at in found[1]["frozen"]["diverged_at"] >= 0] == [0, 1, 0]


def test_two_processes_resume_what_process_0_wrote(found):
    whole = fit(mlp(), batch_size=7)
    for results in found:
        for key, value in whole.items():
            if value is not None:
                assert_equal(results["resumed"][key], value, 1e-10)


def test_two_processes_end_together_if_a_callback_of_one_ends_the_training(found):
    first, second = (results["ended"]["elbo"] for results in found)
    assert len(first) == 100 and torch.equal(first, second)


def test_one_process_goes_on_where_two_were(folder, found):
    again = fit(mlp(seed=9), batch_size=7, steps=15, checkpoint=folder / "resumed.pt")
    assert_equal(again["elbo"], fit(mlp(), batch_size=7, steps=15)["elbo"], 1e-10)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("divergence", [r"DivergenceError: the ELBO .* not finite at step 0 \(seen at 10\)"] * 2),
        ("factorisation", ["FactorisationError: .*layer 0, Linear.* is not positive definite"] * 2),
        (
            "one factorisation",
            [
                r"FactorisationError: a matrix of another process is not positive definite \(its error says",
                r"FactorisationError: layer 9: the posterior precision .* \(as planned\)",
            ],
        ),
        (
            "parameters",
            [r"ValueError: processes \[1\] differ from process 0 in their parameters: give all"] * 2,
        ),
        *(
            (name, ["differ from process 0 in their settings or data"] * 2)
            for name in ("seed", "data", "steps")
        ),
        ("small batch", ["ValueError: a step of 1 points is too small for 2 processes"] * 2),
        ("checkpoint", ["ValueError: .* differ from process 0 in their checkpoint"] * 2),
        ("deadline", ["Paused: paused at step 100 of 120"] * 2),
    ],
)
def test_what_goes_wrong_goes_wrong_everywhere(name, messages, found):
    for results, message in zip(found, messages, strict=True):
        assert re.search(message, results[name]), results[name]
