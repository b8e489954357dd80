"""Run what is missing on a borrowed accelerator: ``python tools/accelerator.py --minutes 9 --out DIR``.

The plan goes by printed numbers per second: deep Gaussian processes of the small sets first (all splits of a
cell train together), then networks on concrete and wine, then images. Records are written to DIR as groups
are done, trainings pause when the time is up, and the checkout stays as it is. At home ``python -m
experiments merge DIR/*.jsonl`` joins them to those that are there. Several jobs share
the GPU, best below NVIDIA's multi-process service (``nvidia-cuda-mps-control -d``).
"""

import argparse
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from experiments import RecordError
from experiments.ober2021 import cifar10, dgp_uci
from experiments.runner.memory import keep_memory
from experiments.runner.records import results_directory
from experiments.runner.running import Placement, run_experiment
from gilib.data import DataError
from gilib.training import Speed


def plan() -> Iterator[tuple[str, str, list[str]]]:
    """Experiments, scales and filters in the order in which they should run."""
    small = [f"dataset={name}" for name in dgp_uci.SMALL]
    for depth in sorted(sum(dgp_uci.DEPTHS, ())):
        yield "dgp_uci", "paper", [*small, f"depth={depth}"]
    yield "uci", "long", ["dataset=concrete", "dataset=wine"]
    yield "cifar10", "long", ["network=resnet8", "method=gi", f"prior={cifar10.PRIORS[0]}"]


def run(place: Placement, minutes: float, dry: bool = False) -> None:
    """Run the plan until the time is up; dry: every experiment of it at smoke scale."""
    end = time.monotonic() + 60.0 * minutes
    steps = [(name, "smoke", []) for name in dict.fromkeys(step[0] for step in plan())] if dry else plan()
    for name, scale, only in steps:
        left = (end - time.monotonic()) / 60.0
        if left <= 0.0:
            return
        try:
            done = run_experiment(name, scale, place, only=only, time_limit=left)
        except (DataError, RecordError, ValueError) as error:  # no search is complete yet, or no data
            print(f"{name} {' '.join(only)}: {error}", flush=True)
        else:
            print(f"{name} {' '.join(only)}: {done.added} added, {done.left} left", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Copy the records there are, add to the copy, leave it in the folder asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the record files")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--jobs", type=int, default=8, help="processes that share the accelerator")
    parser.add_argument("--dry", action="store_true", help="a smoke run of everything, on this processor")
    options = parser.parse_args(arguments)
    if not options.dry and not torch.cuda.is_available():
        raise SystemExit("error: no CUDA device was found")
    keep_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    for file in results_directory().glob("*.jsonl"):
        if not (options.out / file.name).exists():
            shutil.copy(file, options.out)
    os.environ["GILIB_RESULTS"] = str(options.out.resolve())
    place = Placement("cpu" if options.dry else "cuda", jobs=options.jobs, speed=Speed(replay=True))
    run(place, options.minutes, options.dry)


if __name__ == "__main__":
    main()
