"""A training step on a processor, called and replayed (`Speed(replay=True)`).

The steps are those of `bali.py`, beside Adam's in plain PyTorch, of `deep_gp.py`, beside GPyTorch's, and of
models of `devices.py`, where the step that is called is the measure: these in five rounds, in turns, of which
the fastest counts.

    python benchmarks/replays.py [--threads 1] [--repeats 200] [--only bali devices] [--record]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import bali
import deep_gp
import devices
import torch
from measures import CPU
from recording import Row, parser, running

from gilib.training import Speed

UCI = ("yacht", "concrete", "kin8nm", "protein")
LARGE = {"resnet8", "20 replicas"}  # whose calls are next to nothing
MODELS = [name for name in devices.CASES if not name.endswith(", large") and name not in LARGE]
WAYS = {"called": Speed(replay=False), "replayed": Speed(replay=True)}
ROUNDS = 5


def model(name: str, repeats: int) -> Row:
    """Time a model both ways."""
    case, steps, threads = devices.CASES[name](), max(1, repeats // ROUNDS), torch.get_num_threads()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, speed in WAYS.items():
            times[way].append(devices.watched(case, CPU, speed, steps, threads).ms)
    fastest = {way: min(found) for way, found in times.items()}
    return Row({"model": name}, "called", fastest, dict.fromkeys(WAYS, case.gflop))


PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "bali": lambda repeats: (bali.row(name, repeats) for name in (*UCI, "mnist")),
    "deep_gp": lambda repeats: (deep_gp.row(depth, max(2, repeats // 30), CPU) for depth in (2, 5)),
    "models": lambda repeats: (model(name, repeats) for name in MODELS),
}


def main(arguments: list[str] | None = None) -> None:
    """Time, print, record."""
    known = parser(__doc__, 200, threads=1)
    known.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    options = known.parse_args(arguments)
    with running("replays", options) as run:
        run.finish(
            [
                dataclasses.replace(row, case={"part": part, **row.case})
                for part in options.only
                for row in PARTS[part](options.repeats)
            ]
        )


if __name__ == "__main__":
    main()
