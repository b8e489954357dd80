"""What the benchmarks share: their options, the table that they print, and the record that `--record` adds.

A record is a line of `results/benchmarks.jsonl`, written like every other of `results/`: under a lock, in one
step. Its configuration holds all that a time depends on: benchmark, options, threads, hardware, versions and
revision. The same configuration is recorded once.

    python benchmarks/recording.py FILE...     # add what other machines recorded
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import measures
import torch

from experiments.common.measuring import significant
from experiments.runner.identity import identity
from experiments.runner.provenance import provenance, source_revision
from experiments.runner.records import read_records, results_file
from experiments.runner.writing import append
from gilib.recipes.base import keep_freed_memory

NAME = "benchmarks"  # of the file in results/


@dataclass(frozen=True)
class BenchmarkConfig:
    """What a record is known by.

    Attributes:
        benchmark: the script.
        settings: its options.
        threads: of PyTorch.
        hardware: of the machine.
        torch: its version.
        revision: of the source, with a + where `gilib` or `benchmarks` differ from the commit.
        scale: "reduced": a benchmark has no other.
    """

    benchmark: str
    settings: dict[str, Any]
    threads: int
    hardware: str
    torch: str
    revision: str
    scale: str = "reduced"


@dataclass(frozen=True)
class Row:
    """One case of a benchmark, by method.

    Attributes:
        case: shapes, and whatever else tells it from other cases.
        against: the method whose time is divided by the others': how many times faster these are.
        ms: of a step, by `measures.clock`.
        gflop: floors: operations that no arrangement of the computation avoids.
        mbyte: floors: bytes that pass through memory where they fit in no cache.
        faults: minor faults of a step.
        more: further numbers, by name.
    """

    case: dict[str, Any]
    against: str
    ms: dict[str, float]
    gflop: dict[str, float] = field(default_factory=dict)
    mbyte: dict[str, float] = field(default_factory=dict)
    faults: dict[str, float] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> dict[str, float]:
        """How many times faster than `against`; within one run, so of one machine in one state."""
        return {name: self.ms[self.against] / spent for name, spent in self.ms.items()}

    def share(self, rate: float) -> dict[str, float]:
        """Of the rate of large products (GFLOP/s), taking a method to need its floor and no more."""
        return {name: 1e3 * work / rate / self.ms[name] for name, work in self.gflop.items()}

    def body(self, rate: float) -> dict[str, Any]:
        """As a record holds it, six digits a number."""
        held = {key: value for key, value in dataclasses.asdict(self).items() if value}
        found = _rounded({**held, "ratio": self.ratio, "share": self.share(rate)})
        assert isinstance(found, dict)
        return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return significant(value) if isinstance(value, float) else value


def parser(doc: str | None, repeats: int, threads: int | None = None) -> argparse.ArgumentParser:
    """The options that every benchmark has.

    Args:
        doc: of the script; its first line describes it.
        repeats: the default number of steps that are timed.
        threads: the default number of threads; None: PyTorch's.
    """
    options = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    options.add_argument("--threads", type=int, default=threads or torch.get_num_threads())
    options.add_argument("--repeats", type=int, default=repeats)
    options.add_argument("--keep-memory", action="store_true", help="ask the allocator to keep what is freed")
    options.add_argument("--without-onednn", action="store_true", help="torch's own library for all products")
    options.add_argument("--keep-denormals", action="store_true", help="flush none to zero, on no side")
    options.add_argument("--record", action="store_true", help=f"add a line to results/{NAME}.jsonl")
    return options


@dataclass(frozen=True)
class Run:
    """A benchmark that is running.

    Attributes:
        benchmark: its name.
        options: of the command line.
        device: where it runs.
        product_rate: GFLOP/s of large products in float32, before the first step.
        double_rate: the same in float64.
        copy_rate: GB/s of a large copy.
        load: of the machine at the start, processes.
        started: when, `time.perf_counter()`.
    """

    benchmark: str
    options: argparse.Namespace
    device: torch.device
    product_rate: float
    double_rate: float
    copy_rate: float
    load: float
    started: float

    def finish(self, rows: Sequence[Row]) -> None:
        """Print the rows, and record them if asked."""
        self.show(rows)
        if self.options.record:
            self.record(rows)

    def show(self, rows: Sequence[Row]) -> None:
        """Print what was measured."""
        print(f"{self.benchmark}: torch {torch.__version__}, {torch.get_num_threads()} threads")
        print(f"{provenance(self.device.type)['hardware']}, load {self.load:.1f}")
        print(f"large float32 products {self.product_rate:.0f} GFLOP/s, copies {self.copy_rate:.1f} GB/s")
        header = ("method", "ms", "times faster", "GFLOP", "of rate", "MB", "faults")
        width = max(len(name) for row in rows for name in row.ms)
        for row in rows:
            print(", ".join(f"{key} {value}" for key, value in row.case.items()))
            print(f"  {header[0]:{width}}" + "".join(f"{name:>14}" for name in header[1:]))
            share = row.share(self.product_rate)
            for name, spent in row.ms.items():
                numbers = (spent, row.ratio[name], row.gflop.get(name), share.get(name))
                cells = [*numbers, row.mbyte.get(name), row.faults.get(name)]
                print(f"  {name:{width}}" + "".join(_cell(value) for value in cells))
            for key, value in row.more.items():
                print(f"  {key}: {value}")

    def record(self, rows: Sequence[Row]) -> None:
        """Add them to the records of all benchmarks."""
        source = provenance(self.device.type) | {"revision": source_revision(NAME)}
        settings = {
            key: value for key, value in vars(self.options).items() if key not in ("record", "threads")
        }
        known = {key: source[key] for key in ("threads", "hardware", "torch", "revision")}
        config = BenchmarkConfig(self.benchmark, settings, **known)
        metrics = {
            "product_rate": significant(self.product_rate),
            "double_rate": significant(self.double_rate),
            "copy_rate": significant(self.copy_rate),
            "clock": measures.clock(self.device).__name__,
            "load": self.load,
            "rows": [row.body(self.product_rate) for row in rows],
        }
        described = dataclasses.asdict(config)
        body = {
            "id": identity(NAME, config),
            "experiment": NAME,
            "scale": described.pop("scale"),
            "config": described,
            "data": None,
            "metrics": metrics,
            "curve": [],
            "seconds": round(time.perf_counter() - self.started, 1),
            "provenance": source,
        }
        added = append(NAME, [body], BenchmarkConfig)
        print(f"{'added to' if added else 'recorded already in'} {results_file(NAME)}")


def _cell(value: float | None) -> str:
    return f"{'–' if value is None else f'{value:.3g}' if abs(value) < 100 else f'{value:.0f}':>14}"


@contextmanager
def running(benchmark: str, options: argparse.Namespace) -> Iterator[Run]:
    """Within it: threads and libraries as asked for, denormal numbers flushed unless they are to be kept."""
    if options.keep_memory:
        measures.keep_memory()
    keep_freed_memory()
    flushed = sys.float_info.min * 0.5 == 0.0
    before, onednn = (torch.get_num_threads(), flushed), torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = onednn and not options.without_onednn
    torch.set_flush_denormal(not options.keep_denormals)  # before threads start, so that all have it
    torch.set_num_threads(options.threads)
    device = torch.device(getattr(options, "device", "cpu"))
    load, started = round(os.getloadavg()[0], 2), time.perf_counter()
    try:
        rates = measures.rate(device), measures.rate(device, torch.float64), measures.copy_rate(device)
        yield Run(benchmark, options, device, *rates, load, started)
    finally:
        torch.set_num_threads(before[0])
        torch.set_flush_denormal(before[1])
        torch.backends.mkldnn.enabled = onednn


def main(arguments: list[str] | None = None) -> None:
    """Add the records of files that are not there yet."""
    known = argparse.ArgumentParser(description="Join what benchmarks recorded on several machines.")
    known.add_argument("files", nargs="+", type=Path, metavar="FILE")
    bodies = [record for path in known.parse_args(arguments).files for record in read_records(path)]
    if others := {record["experiment"] for record in bodies} - {NAME}:
        raise SystemExit(
            f"error: these are records of {', '.join(sorted(others))}: join them by "
            "`python -m experiments merge`"
        )
    print(f"{len(append(NAME, bodies, BenchmarkConfig))} records added to {results_file(NAME)}")


if __name__ == "__main__":
    main()
