"""Training R networks in one program against training them one by one.

The networks are those of the UCI tables on yacht: 2 × 50 units, one network for each split, its own learning
rate, noise and minibatches. Both ways are `gilib.fit`; their bounds over the first steps are compared before
anything is timed. Times are interleaved, medians, in one process: the ratio is what counts.

    python benchmarks/replicas.py [--device cuda] [--replicas 1 4 16] [--points 100] [--samples 2]
        [--record]
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from measures import clock, minor_faults, wait
from recording import Row, parser, running

import gilib
from experiments.common import uci_splits
from experiments.ober2021 import uci, uci_run
from experiments.runner.experiment import Job

WARM_UP, STEPS = 3, 20
WIDTH = 50


def configurations(method: str, replicas: int, points: int, samples: int, steps: int) -> list[uci.UciConfig]:
    """One configuration for each replica: another split and learning rate."""
    inducing = 0 if method == "fac" else points
    return [
        uci.UciConfig("yacht", method, "NealPrior", r % 20, 1e-3 * (1 + r % 4), 100, inducing, steps, samples)
        for r in range(replicas)
    ]


def train(
    configs: Sequence[uci.UciConfig], device: torch.device
) -> tuple[gilib.training.History, float, int]:
    """Train together; the history, and the seconds and minor faults of the steps after the first few."""
    splits = [config.split for config in configs]
    data = uci_splits.load("yacht", splits, device)
    net, likelihood = uci_run.build(configs, data, splits)
    rates, job = [config.lr for config in configs], Job(device, None)
    uci_run.train(_shortened(configs[0], WARM_UP), net, likelihood, data, rates, splits, job)
    wait(device)
    now = clock(device)
    started, before = now(), minor_faults()
    history = uci_run.train(configs[0], net, likelihood, data, rates, splits, job)
    wait(device)
    return history, now() - started, minor_faults() - before


def _shortened(config: uci.UciConfig, steps: int) -> uci.UciConfig:
    return uci.UciConfig(**{**vars(config), "steps": steps})


def check(method: str, device: torch.device, replicas: int = 3, points: int = 20, samples: int = 2) -> float:
    """The largest relative difference between the bounds of both ways, which must be a rounding error."""
    configs = configurations(method, replicas, points, samples, STEPS)
    together = train(configs, device)[0].elbo
    alone = torch.stack([train([config], device)[0].elbo[:, 0] for config in configs], 1)
    difference = float(((together - alone) / alone).abs().max())
    assert difference < 1e-2, f"{method}: bounds differ by {difference:.1e} (relative, float32)"
    return difference


def operations(method: str, points: int, samples: int) -> float:
    """GFLOP of a step of one replica that no arrangement avoids.

    Inducing points: the weighted Gram matrices of the hidden-to-hidden layer and their gradients, 3 S O M I²,
    and the factorisations, products and gradients of its S O precisions, about 7 S O I³ (local inducing: the
    same Gram matrices once for all samples). Factorised layers: two products forward and four backward for a
    batch of 100 points.
    """
    size = WIDTH + 1
    products = 6 * 2 * samples * 100 * size * WIDTH
    if method in ("fac", "fac_gi"):
        return products / 1e9
    grams = 3 * WIDTH * points * size**2 * (samples if method == "gi" else 1)
    factors = 7 * WIDTH * size**3 * (samples if method == "gi" else 1)
    return (grams + factors + products) / 1e9


def measure(
    method: str, replicas: int, points: int, samples: int, device: torch.device, repeats: int
) -> tuple[float, float, float]:
    """Milliseconds per step and replica, one by one and together; minor faults of a step of all together."""
    configs = configurations(method, replicas, points, samples, STEPS)
    alone, together, faults = [], [], []
    for _ in range(repeats):
        alone.append(1e3 * train(configs[:1], device)[1] / STEPS)
        _, seconds, pages = train(configs, device)
        together.append(1e3 * seconds / STEPS / replicas)
        faults.append(pages / STEPS)
    return statistics.median(alone), statistics.median(together), statistics.mean(faults)


def row(method: str, replicas: int, options: argparse.Namespace) -> Row:
    """Time one method with so many replicas."""
    device, work = torch.device(options.device), operations(method, options.points, options.samples)
    alone, together, faults = measure(
        method, replicas, options.points, options.samples, device, options.repeats
    )
    return Row(
        {"method": method, "replicas": replicas, "inducing": options.points, "samples": options.samples},
        "alone",
        {"alone": alone, "together": together},
        {"alone": work, "together": work},
        faults={"together": faults / replicas},
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record: milliseconds, operations and faults of a step of one replica."""
    known = parser(__doc__, 3, threads=1)
    known.add_argument("--device", default="cpu")
    known.add_argument("--methods", nargs="+", choices=uci.METHODS, default=list(uci.METHODS))
    known.add_argument("--replicas", type=int, nargs="+", default=[1, 4, 16])
    known.add_argument("--points", type=int, default=100, help="inducing points")
    known.add_argument("--samples", type=int, default=2, help="draws a step")
    options = known.parse_args(arguments)
    with running("replicas", options) as run:
        rows = []
        for method in options.methods:
            check(method, run.device)
            rows += [row(method, replicas, options) for replicas in options.replicas]
        run.finish(rows)


if __name__ == "__main__":
    main()
