"""Run what is missing on a borrowed accelerator: ``python tools/accelerator.py --minutes 9 --out DIR``.

The parts: ``uci`` (small sets first, each searched and then trained), ``depth``, ``images`` (the global
inducing ResNet of CIFAR-10 first), ``dgp`` (deep Gaussian processes), ``structured`` (those of Lindinger et
al., small sets first). Trainings pause when the time is up and go on at the next call on the same machine.
The records, old and new, are left in DIR; the checkout stays as it is. At home ``python -m gilib.experiments
merge DIR/*.jsonl`` joins them to those that are there.
"""

import argparse
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from gilib.data.storage import DataError
from gilib.experiments import RecordError
from gilib.experiments.ober2021 import cifar10
from gilib.experiments.ober2021.uci import SCALES
from gilib.experiments.registry import EXPERIMENTS
from gilib.experiments.runner.memory import keep_memory
from gilib.experiments.runner.records import results_directory
from gilib.experiments.running import Placement, run_experiment
from gilib.training import Speed
from gilib.training.gradients.speed import PRECISIONS

PARTS = ("uci", "depth", "images", "dgp", "structured")


def plan(scale: str, parts: Sequence[str] = PARTS) -> Iterator[tuple[str, list[str]]]:
    """Experiments and filters in the order in which they should run."""
    everything: list[tuple[str, str, list[str]]] = []
    for name in SCALES[scale].sets:
        everything += [("uci", experiment, [f"dataset={name}"]) for experiment in ("uci_search", "uci")]
    first = ["network=resnet8", "method=gi", f"prior={cifar10.PRIORS[0]}"]
    everything += [("depth", "depth", []), ("images", "cifar10", first)]
    everything += [("images", "mnist_500", []), ("images", "cifar10", [])]
    everything += [
        ("dgp", experiment, []) for experiment in ("dgp_start", "dgp_attempts", "dgp_toy", "dgp_uci")
    ]
    structured = ("structured_covariance", "structured_convergence", "structured_uci")
    everything += [("structured", experiment, []) for experiment in structured]
    for part, experiment, only in everything:
        if part in parts and scale in EXPERIMENTS[experiment].scales:
            yield experiment, only


def run(scale: str, place: Placement, minutes: float, parts: Sequence[str] = PARTS) -> None:
    """Run the plan until the time is up."""
    end = time.monotonic() + 60.0 * minutes
    for name, only in plan(scale, parts):
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
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--scale", choices=list(SCALES), default="paper")
    parser.add_argument("--device", choices=["cuda", "cpu", "auto"], default="cuda")
    parser.add_argument("--arithmetic", choices=PRECISIONS, default="full")
    parser.add_argument("--replay", action="store_true", help="record steps, and replay them")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("error: no CUDA device was found")
    keep_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    for file in results_directory().glob("*.jsonl"):
        if not (options.out / file.name).exists():
            shutil.copy(file, options.out)
    os.environ["GILIB_RESULTS"] = str(options.out.resolve())
    place = Placement(options.device, speed=Speed(options.arithmetic, options.replay))
    run(options.scale, place, options.minutes, options.parts)


if __name__ == "__main__":
    main()
