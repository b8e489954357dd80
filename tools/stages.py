"""Runs the project's checks one after another and times each: ``python tools/stages.py [STAGE ...]``.

A stage that fails does not hide the others; one that needs the built book is not run where there is none.
The exit code is zero only when every stage asked for has passed. All stages together build the book from
nothing; the book by itself keeps the pages whose text has not changed since a build that passed.
"""

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import book_key
import browser

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
READ = ROOT / "_build" / ".doctrees"  # with it, a chapter that failed would pass unread in the next build
PASSED = ROOT / "_build" / ".passed"  # what the last build was made with, if it passed
PYTHON = [sys.executable]
PYTEST = [*PYTHON, "-m", "pytest", "-q"]
BOOK = [str(Path(sys.executable).parent / "jupyter-book"), "build", "-W", "-n", "--keep-going", "."]
NBVAL = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120"]
LINKS = "tests/site/test_links.py"
IN_PARALLEL = ["-n", "2", "--dist", "loadfile"]
PAGE_BY_PAGE = ["-n", "2", "--dist", "load"]  # most of these tests are in one file


@dataclass(frozen=True)
class Stage:
    """Commands that must all succeed; ``needs_book`` when they read the built site."""

    commands: tuple[list[str], ...]
    needs_book: bool = False
    needs_browser: bool = False


STAGES = {
    "lint": Stage(
        (
            [*PYTHON, "-m", "ruff", "check", "."],
            [*PYTHON, "-m", "ruff", "format", "--check", "."],
            [*PYTHON, "-m", "mypy"],
            [*PYTHON, "-m", "mypy", "tools"],
        )
    ),
    "unit": Stage(([*PYTEST, *IN_PARALLEL],)),
    "notebooks": Stage(([*PYTEST, *NBVAL, *IN_PARALLEL, "tests/notebooks"],)),
    "book": Stage(([*PYTHON, "tools/execution.py"], BOOK)),
    "links": Stage(([*PYTEST, LINKS],), needs_book=True),
    "wheel": Stage(([*PYTEST, "tests/packaging"],)),
    "site": Stage(
        ([*PYTEST, *PAGE_BY_PAGE, "--ignore", LINKS, "tests/site"],), needs_book=True, needs_browser=True
    ),
}
ALL = tuple(STAGES)


def environment() -> dict[str, str]:
    """One thread a process: several processes share the cores, and results do not depend on their number.

    What JAX has compiled is kept: chains of many tests are the same program.
    """
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    compiled = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / "_build" / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, **threads, **compiled, "PATH": path, "PYTHONHASHSEED": "0"}


def make_room(afresh: bool) -> str:
    """Remove what an earlier build has left, unless that passed and text alone has changed since; the key."""
    key = book_key.build_key()
    if afresh or not PASSED.is_file() or PASSED.read_text() != key:
        for folder in (SITE, READ):
            shutil.rmtree(folder, ignore_errors=True)
    PASSED.unlink(missing_ok=True)
    return key


def run(name: str, stage: Stage, afresh: bool = True) -> bool:
    """Whether every command of the stage succeeded; all of them run.

    Args:
        name: of the stage.
        stage: its commands.
        afresh: whether the book is built from nothing, or what has passed and not changed since stays.
    """
    print(f"\n=== {name}", flush=True)
    if stage.needs_browser and (missing := browser.problem()):
        print(missing, file=sys.stderr, flush=True)
        return False
    made_with = make_room(afresh) if name == "book" else ""
    passed = True
    for command in stage.commands:
        print("+", Path(command[0]).name, *command[1:], flush=True)
        passed &= subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode == 0
    if made_with and passed:
        PASSED.write_text(made_with)
    return passed


def main(names: list[str]) -> int:
    """Run the stages in their order, print a table, return an exit code."""
    unknown = set(names) - set(STAGES)
    if unknown:
        raise SystemExit(f"no stage {', '.join(sorted(unknown))}; choose from {', '.join(ALL)}")
    rows: list[tuple[str, str, float]] = []
    for name in [name for name in ALL if name in (names or ALL)]:
        start = time.perf_counter()
        if STAGES[name].needs_book and not (SITE / "index.html").is_file():
            result = "NOT RUN (no book: `make book` first)"
        else:
            result = "passed" if run(name, STAGES[name], afresh=not names) else "FAILED"
        rows.append((name, result, time.perf_counter() - start))
    print("\n" + "\n".join(f"{name:<10} {seconds:7.1f} s  {result}" for name, result, seconds in rows))
    print(f"{'total':<10} {sum(row[2] for row in rows):7.1f} s")
    if ("book", "passed") in [row[:2] for row in rows]:
        print(f"The book: {SITE / 'index.html'}")
    return 0 if all(row[1] == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
