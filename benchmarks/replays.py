"""A training step on a processor, called and replayed (`Speed(replay=True)`).

The steps are those of `bali.py`, beside Adam's in plain PyTorch, of `deep_gp.py`, beside GPyTorch's, and of
models of `devices.py`, where the step that is called is the measure.

    python benchmarks/replays.py [--threads 1] [--repeats 200] [--only bali devices] [--record]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import bali
import deep_gp
import devices
from measures import CPU
from recording import Row, parser, running

UCI = ("yacht", "concrete", "kin8nm", "protein")
MODELS = [
    name for name in devices.CASES if not name.endswith(", large") and name not in ("resnet8", "20 replicas")
]
PARTS: dict[str, Callable[[int], Iterator[Row]]] = {
    "bali": lambda repeats: (bali.row(name, repeats) for name in (*UCI, "mnist")),
    "deep_gp": lambda repeats: (deep_gp.row(depth, max(2, repeats // 30), CPU) for depth in (2, 5)),
    "devices": lambda repeats: (devices.row(name, CPU, repeats) for name in MODELS),
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
