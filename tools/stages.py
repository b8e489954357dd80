"""Runs the project's checks and times each: ``python tools/stages.py [STAGE ...]``.

A stage that fails does not hide the others; one that needs the built book is not run where there is none.
The exit code is zero only when every stage asked for has passed. All stages together build the book from
nothing; the book by itself keeps the pages whose text has not changed since a build that passed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import book
import book_key
import browser

ROOT = Path(__file__).resolve().parents[1]
SITE = book.SITE
READ = ROOT / "_build" / ".doctrees"  # with it, a chapter that failed would pass unread in the next build
PASSED = ROOT / "_build" / ".passed"  # what the last build was made with, if it passed
PYTHON = [sys.executable]
PYTEST = [*PYTHON, "-m", "pytest", "-q"]
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120"]
LINKS = "tests/site/test_links.py"
PROCESSES = ["tests/experiments/runner", "tests/test_benchmarks.py"]  # start processes, and wait for them
IN_PARALLEL = ["-n", "2", "--dist", "loadfile"]
STEALING = ["-n", "2", "--dist", "worksteal"]  # file after file, and no process waits at the end
SEALED = ROOT / "tools" / "sealed"
DATA = "GILIB_DATA"
PUBLISHED = [  # tests that read published files, which do not ship, and skip without them
    "tests/experiments/images/test_images.py",
    "tests/data/test_tables.py",
    "tests/experiments/comparisons/test_posteriors_images.py",
    "tests/training/test_bali_collapse.py",
]


def alone(folder: str) -> list[str]:
    """The tests of a folder without `tests/conftest.py`, which imports torch; they need none."""
    return [f"--confcutdir={folder}", folder]


@dataclass(frozen=True)
class Stage:
    """Commands that must all succeed.

    ``needs_book`` when they read the built site, ``needs_data`` when they read what is below GILIB_DATA. A
    sealed stage sees no network, no GILIB_DATA and an empty cache of the user, as a newcomer's would.
    """

    commands: tuple[list[str], ...]
    sealed: bool = False
    needs_book: bool = False
    needs_browser: bool = False
    needs_data: bool = False


STAGES = {
    "lint": Stage(
        (
            [*PYTHON, "-m", "ruff", "check", "."],
            [*PYTHON, "-m", "ruff", "format", "--check", "."],
            [*PYTHON, "-m", "mypy"],
            [*PYTHON, "-m", "mypy", "tools"],
        )
    ),
    "unit": Stage(
        ([*PYTEST, *STEALING, "--durations=40", *(f"--ignore={path}" for path in PROCESSES)],), sealed=True
    ),
    "processes": Stage(([*PYTEST, *PROCESSES],), sealed=True),
    "notebooks": Stage(([*PYTEST, *NBVAL, *IN_PARALLEL, *alone("tests/notebooks")],), sealed=True),
    "book": Stage(([*PYTHON, "tools/book.py"],), sealed=True),
    "links": Stage(([*PYTEST, LINKS],), needs_book=True),
    "wheel": Stage(([*PYTEST, *alone("tests/packaging")],)),
    "site": Stage(
        ([*PYTEST, *STEALING, "--ignore", LINKS, *alone("tests/site")],), needs_book=True, needs_browser=True
    ),
    "data": Stage(([*PYTEST, *IN_PARALLEL, *PUBLISHED],), needs_data=True),
}
ALL = tuple(name for name, stage in STAGES.items() if not stage.needs_data)
ASIDE = ("lint", "wheel", "processes")  # one process each
BESIDE_THEM = ("book", "links")  # likewise


class Row(NamedTuple):
    """What became of a stage."""

    name: str
    result: str
    seconds: float


def environment(cache: str | None = None) -> dict[str, str]:
    """One thread a process: several processes share the cores, and results do not depend on their number.

    What JAX has compiled is kept, since chains of many tests are the same program, and so are the fonts that
    Matplotlib has found.

    Args:
        cache: a folder that stands for the user's cache in a stage that is sealed; None: the stage is not.
    """
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    compiled = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / "_build" / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    sealed = {} if cache is None else {"XDG_CACHE_HOME": cache, "LOCALAPPDATA": cache, DATA: ""}
    if cache is not None:
        found = os.environ.get("PYTHONPATH")
        sealed["PYTHONPATH"] = os.pathsep.join([str(SEALED), *([found] if found else [])])
        sealed["MPLCONFIGDIR"] = str(ROOT / "_build" / ".matplotlib")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **threads, **compiled, **sealed, "PATH": path, "PYTHONHASHSEED": "0"}


def make_room(afresh: bool) -> str:
    """Remove what an earlier build has left, unless that passed and text alone has changed since; the key."""
    key = book_key.build_key()
    if afresh or not PASSED.is_file() or PASSED.read_text() != key:
        for folder in (SITE, READ):
            shutil.rmtree(folder, ignore_errors=True)
    PASSED.unlink(missing_ok=True)
    return key


def run(name: str, stage: Stage, afresh: bool = True, log: IO[str] | None = None) -> bool:
    """Whether every command of the stage succeeded; all of them run.

    Args:
        name: of the stage.
        stage: its commands.
        afresh: whether the book is built from nothing, or what has passed and not changed since stays.
        log: what the commands print goes there; None: to the terminal.
    """
    print(f"\n=== {name}", flush=True, file=log)
    if stage.needs_browser and (missing := browser.problem()):
        print(missing, file=log or sys.stderr, flush=True)
        return False
    made_with = make_room(afresh) if name == "book" else ""
    passed = True
    with tempfile.TemporaryDirectory() as cache:
        settings = environment(cache if stage.sealed else None)
        for command in stage.commands:
            print("+", Path(command[0]).name, *command[1:], flush=True, file=log)
            done = subprocess.run(
                command, cwd=ROOT, env=settings, check=False, stdout=log, stderr=log and subprocess.STDOUT
            )
            passed &= done.returncode == 0
    if made_with and passed:
        PASSED.write_text(made_with)
    return passed


def timed(name: str, afresh: bool, log: IO[str] | None = None) -> Row:
    """Run a stage, if what it needs is there."""
    start = time.perf_counter()
    if STAGES[name].needs_book and not (SITE / "index.html").is_file():
        result = "NOT RUN (no book: `make book` first)"
    elif STAGES[name].needs_data and not os.environ.get(DATA):
        result = f"NOT RUN ({DATA} is not set)"
    else:
        result = "passed" if run(name, STAGES[name], afresh, log) else "FAILED"
    return Row(name, result, time.perf_counter() - start)


def run_all(chosen: list[str], afresh: bool) -> list[Row]:
    """Run stages one after another, but what takes one process beside the book, which takes one, too."""
    aside = [name for name in chosen if name in ASIDE and "book" in chosen]
    rows: dict[str, Row] = {}

    def others(log: IO[str]) -> None:
        rows.update((name, timed(name, afresh, log)) for name in aside)

    with ThreadPoolExecutor(1) as lane, tempfile.TemporaryFile("w+") as log:
        waiting: list[Future[None]] = []
        for name in [name for name in chosen if name not in aside]:
            if name == "book":
                waiting.append(lane.submit(others, log))
            if waiting and name not in BESIDE_THEM:
                waiting.pop().result()
            rows[name] = timed(name, afresh)
        if waiting:
            waiting.pop().result()
        log.seek(0)
        print(log.read(), end="", flush=True)
    return [rows[name] for name in chosen]


def main(names: list[str]) -> int:
    """Run the stages, print a table, return an exit code."""
    unknown = set(names) - set(STAGES)
    if unknown:
        raise SystemExit(f"no stage {', '.join(sorted(unknown))}; choose from {', '.join(STAGES)}")
    start = time.perf_counter()
    rows = run_all([name for name in STAGES if name in (names or ALL)], afresh=not names)
    print("\n" + "\n".join(f"{row.name:<10} {row.seconds:7.1f} s  {row.result}" for row in rows))
    print(f"{'total':<10} {time.perf_counter() - start:7.1f} s")
    built = {row.name: row.result == "passed" for row in rows}
    if "book" in built:
        print(f"The book: {SITE / 'index.html'}" if built["book"] else book.verdict())
    return 0 if all(row.result == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
