"""The command line: `python -m gilib.experiments list | run NAME | status`."""

from __future__ import annotations

import argparse
import sys

from gilib.experiments.records import SCALES, RecordError
from gilib.experiments.runner import EXPERIMENTS, run_experiment, status


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gilib.experiments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what there is")
    commands.add_parser("status", help="how much of it is recorded")
    run = commands.add_parser("run", help="run what is not recorded yet")
    run.add_argument("name", choices=sorted(EXPERIMENTS))
    run.add_argument("--scale", choices=SCALES, default="reduced")
    run.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    run.add_argument("--time-limit", type=float, metavar="MIN", help="start nothing new after MIN minutes")
    options = parser.parse_args(arguments)
    try:
        if options.command == "list":
            for name, experiment in EXPERIMENTS.items():
                print(f"{name:16} {experiment.about}")
        elif options.command == "status":
            for name, scale, done, total in status():
                print(f"{name:16} {scale:8} {done:4} of {total}")
        else:
            added = run_experiment(options.name, options.scale, options.jobs, options.time_limit)
            print(f"{added} records added to {options.name}")
    except (RecordError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
