"""The steps of another revision of this package beside today's, in turns.

Two processes, one for each checkout, make the same steps one after the other, so that both see the machine in
the same state; medians, of the processor's time on one thread. What is compared has been there since the
first paper: a step of training of small networks, with replicas, of a ResNet, and a convolution's statistics.

    git worktree add ../before REVISION
    python benchmarks/revisions.py ../before [--threads 2] [--repeats 25] [--cases toy ResNet-8] [--record]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

from recording import Row, parser, running
from revision_steps import CASES

from experiments.runner.provenance import revision_of

HERE = Path(__file__).resolve().parent
WARM_UP = 3  # steps
KEPT = {  # what `measures.keep_memory` asks of glibc, as it asks its environment
    "MALLOC_MMAP_THRESHOLD_": 2**30,
    "MALLOC_TRIM_THRESHOLD_": 2**31 - 1,
    "MALLOC_TOP_PAD_": 2**26,
}


class Serving:
    """A process of one checkout, which makes steps when asked."""

    def __init__(self, checkout: Path, options: argparse.Namespace):
        """Start it, and see that it runs the package of that checkout."""
        flags = ["without-onednn"] if options.without_onednn else []
        places = {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": str(options.threads)}
        allocator = {name: str(value) for name, value in KEPT.items()} if options.keep_memory else {}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "revision_steps.py"), str(options.threads), *flags],
            env=os.environ | places | allocator,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = Path(self._answer())
        if checkout not in found.parents:
            raise SystemExit(f"{checkout} holds no gilib: {found} was imported")

    def step(self, name: str) -> float:
        """Milliseconds of a step."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self._answer())

    def stop(self) -> None:
        """End it."""
        self.process.communicate()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a process that makes the steps has ended, see its message above")
        return line.strip()


def compare(checkouts: dict[str, Serving], name: str, repeats: int) -> Row:
    """One case: milliseconds of both, medians, in turns."""
    times: dict[str, list[float]] = {which: [] for which in checkouts}
    for _ in range(WARM_UP + repeats):
        for which, serving in checkouts.items():
            times[which].append(serving.step(name))
    found = {which: statistics.median(spent[WARM_UP:]) for which, spent in times.items()}
    return Row({"step": name}, "before", found)


def main(arguments: list[str] | None = None) -> None:
    """Start both, time, print, record."""
    known = parser(__doc__, 25, threads=1)
    known.add_argument("before", type=Path, help="a checkout of the other revision")
    known.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = known.parse_args(arguments)
    before = options.before.resolve()
    options.before = revision_of(before)
    with running("revisions", options) as run:
        places = {"before": before, "now": HERE.parent}
        checkouts = {which: Serving(place, options) for which, place in places.items()}
        try:
            run.finish([compare(checkouts, name, options.repeats) for name in options.cases])
        finally:
            for serving in checkouts.values():
                serving.stop()


if __name__ == "__main__":
    main()
