"""The command line: `python -m experiments list | run NAME | status | merge FILE... | report`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tqdm import tqdm

from experiments.comparing import compared
from experiments.registry import EXPERIMENTS
from experiments.runner.memory import keep_memory
from experiments.runner.merging import merge
from experiments.runner.records import SCALES, RecordError, diverged
from experiments.runner.running import DEVICES, PLACES, Placement, repeat, run_experiment, status
from gilib.data import DataError
from gilib.training import Speed
from gilib.training.gradients.speed import PRECISIONS

CONFLICT, DIVERGED, LEFT = 3, 4, 5
INTERRUPTED = 130  # a shell's exit status after Ctrl-C
STATUSES = (
    "exit status: 0 all is done; 1 an error; 2 wrong usage; 3 merge: another file contradicts a record, "
    "which is kept; 4 run: a training diverged; 5 run: work is left, because time is up or because "
    "another runner does it; 130 interrupted"
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    options = _parser().parse_args(arguments)
    keep_memory()
    try:
        status = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has stopped, for example `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RecordError, DataError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was recorded is kept; run again to go on", file=sys.stderr)
        return INTERRUPTED
    return int(status or 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__, epilog=STATUSES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("list", help="what there is").set_defaults(command=_list)
    commands.add_parser("status", help="how much of it is recorded").set_defaults(command=_status)
    run = commands.add_parser("run", help="run what is not recorded yet", epilog=STATUSES)
    run.set_defaults(command=_run)
    run.add_argument("name", choices=sorted(EXPERIMENTS))
    run.add_argument("--scale", choices=SCALES, default="reduced", help="status lists what there is")
    run.add_argument("--only", nargs="+", action="extend", default=[], metavar="FIELD=VALUE")
    run.add_argument("--device", choices=DEVICES, default="auto")
    run.add_argument("--where", choices=PLACES, default="local", help="ray: the cluster at RAY_ADDRESS")
    run.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    run.add_argument("--gpus", type=float, default=1.0, help="GPUs of a task on a cluster")
    run.add_argument("--time-limit", type=float, metavar="MIN", help="save and stop after MIN minutes")
    run.add_argument("--arithmetic", choices=PRECISIONS, default="full", help="of the data's pass; see fit")
    run.add_argument("--replay", action="store_true", help="also replay on CUDA, and steps of any size")
    run.add_argument("--again", action="store_true", help="repeat what is recorded, and print old beside new")
    joining = commands.add_parser("merge", help="join results files of several machines", epilog=STATUSES)
    joining.set_defaults(command=_merge)
    joining.add_argument("files", nargs="+", type=Path, metavar="FILE")
    report = commands.add_parser("report", help="our numbers beside the papers'")
    report.set_defaults(command=_report)
    report.add_argument("--out", type=Path, metavar="FILE", help="where to write it; default: the terminal")
    return parser


def _list(options: argparse.Namespace) -> None:
    for name, experiment in EXPERIMENTS.items():
        print(f"{name:16} {experiment.about}")


def _status(options: argparse.Namespace) -> None:
    for row in status():
        broken = f", {row.diverged} diverged" if row.diverged else ""
        print(f"{row.name:16} {row.scale:8} " + (row.note or f"{row.recorded:4} of {row.total}{broken}"))


def _run(options: argparse.Namespace) -> int:
    speed = Speed(options.arithmetic, options.replay or None)
    place = Placement(options.device, options.where, options.jobs, options.gpus, speed)
    if options.again:
        return _again(options, place)
    ran = run_experiment(options.name, options.scale, place, only=options.only, time_limit=options.time_limit)
    broken = f" ({ran.diverged} diverged)" if ran.diverged else ""
    all_there = " (all are recorded already)" if not (ran.added or ran.left) else ""
    print(f"{ran.added} records added to {options.name}{broken or all_there}")
    if paused := ran.left - ran.elsewhere:
        print(f"time is up: {paused} configurations are left; run again to go on")
    if ran.elsewhere:
        print(f"another runner works on {ran.elsewhere} configurations, which are left to it")
    return LEFT if ran.left else DIVERGED if ran.diverged else 0


def _again(options: argparse.Namespace, place: Placement) -> int:
    if options.time_limit is not None:
        raise ValueError(
            "--again keeps no checkpoints that a --time-limit could leave: name less with --only"
        )
    found = 0
    for old, new in repeat(options.name, options.scale, place, only=options.only):
        tqdm.write(compared(old, new))
        found = DIVERGED if diverged(new) else found
    return found


def _merge(options: argparse.Namespace) -> int:
    merged = merge(options.files)
    for conflict in merged.conflicts:
        print(f"conflict: {conflict}", file=sys.stderr)
    for name, added in merged.added.items():
        print(f"{added} records added to {name}")
    print(f"{merged.known} were recorded already, {len(merged.conflicts)} of them with other metrics")
    return CONFLICT if merged.conflicts else 0


def _report(options: argparse.Namespace) -> None:
    from experiments import report

    if options.out is None:
        print(report.text())
    else:
        options.out.write_text(report.text(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
