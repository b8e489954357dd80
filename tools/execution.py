"""Executes the chapters side by side into the cache that the book build reads: ``python tools/execution.py``.

The build would execute them, too, but one after another. A chapter that fails here is left to it: it fails
there again, and its page says so.
"""

import os
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors.utils import single_nb_execution
from nbformat import NotebookNode

import book_key
import book_pages
import chapters
import forks

SECONDS = 120  # for a cell, as in _config.yml
PROCESSES = max(1, min(4, os.cpu_count() or 1))


def cache() -> JupyterCacheAbstract:
    """The cache of the present sources."""
    folder = book_key.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return get_cache(str(folder))


def notebook(chapter: Path) -> NotebookNode:
    """A chapter as the build reads it, not executed."""
    return chapters.read(chapter, book_pages.fold_checks(chapter.read_text()))


def missing() -> list[Path]:
    """Chapters whose outputs are not kept, the longest first."""
    kept, found = cache(), []
    for chapter in chapters.chapters():
        try:
            kept.match_cache_notebook(notebook(chapter))
        except KeyError:
            found.append(chapter)
    return sorted(found, key=lambda chapter: -chapter.stat().st_size)


def keep(chapter: Path, executed: NotebookNode, seconds: float) -> None:
    """Store a chapter with its outputs as the build would have."""
    executed.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    bundle = CacheBundleIn(executed, str(chapter), data={"execution_seconds": seconds})
    cache().cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


class Run(NamedTuple):
    """What became of a chapter: the notebook with outputs, how long it took, what went wrong, if anything."""

    notebook: NotebookNode
    seconds: float
    problem: str = ""


def execute(chapter: Path, starts: int = 2) -> Run:
    """Run all cells in a folder of their own, up to the first error.

    A kernel that dies is started once more: two that start side by side may choose the same port.
    """
    content = notebook(chapter)
    try:
        with tempfile.TemporaryDirectory() as folder:
            result = single_nb_execution(content, cwd=folder, timeout=SECONDS, allow_errors=False)
    except RuntimeError as error:  # the kernel died
        return execute(chapter, starts - 1) if starts > 1 else Run(content, 0.0, str(error))
    failure = book_pages.cause(result.exc_string, type(result.err).__name__) if result.err else ""
    return Run(content, result.time, failure)


def main() -> None:
    """Execute what is missing; a line for each chapter."""
    waiting = missing()
    with ProcessPoolExecutor(PROCESSES, initializer=forks.use) as pool:
        runs = {pool.submit(execute, chapter): chapter for chapter in waiting}
        for number, run in enumerate(as_completed(runs), 1):
            chapter, done = runs[run], run.result()
            if not done.problem:
                keep(chapter, done.notebook, done.seconds)
            became = f"FAILED: {done.problem}" if done.problem else f"{done.seconds:.0f} s"
            print(f"chapter {number} of {len(runs)}: {chapter.stem}, {became}", flush=True)


if __name__ == "__main__":
    main()
