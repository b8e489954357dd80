"""Work in pieces: less memory is held at a time, and fewer pages are asked for."""

import subprocess
import sys

import pytest

from gilib.linalg import blocks
from tests.support.benchmarks import BENCHMARKS, load


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
