"""Hands what nbval has executed on to the book, so that a chapter runs once for both.

nbval runs a chapter's cells and compares the checked ones with the reference. When all cells of a chapter
pass, their outputs go into the execution cache that the book build reads.
"""

from pathlib import Path

import pytest
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell

import chapters
import execution
import forks

SECONDS = pytest.StashKey[dict[int, float]]()


def execute_with_history(kernel, cell_input, allow_stdin=None):
    """As nbval's own, but with history, without which a trailing ``;`` does not hide a cell's value."""
    return kernel.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)


def pytest_configure(config):
    """Let kernels be forks, and create the cache before several processes write to it."""
    forks.use()
    RunningKernel.execute_cell_input = execute_with_history
    if not hasattr(config, "workerinput"):
        execution.cache().db  # noqa: B018


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Note each passed cell; after the last, keep the chapter's outputs if every cell passed."""
    report = yield
    if isinstance(item, IPyNbCell) and call.when == "call" and report.passed:
        seconds = item.parent.stash.setdefault(SECONDS, {})
        seconds[item.cell_num] = call.duration
        item.cell.outputs = item.test_outputs
        if len(seconds) == len(chapters.code(item.parent.nb)):
            keep(item.parent, sum(seconds.values()))
    return report


def keep(executed, seconds):
    """Store the outputs of a chapter as the book build would have."""
    found = {chapters.reference(path): path for path in chapters.chapters()}
    chapter = found[Path(executed.path)]
    notebook = execution.notebook(chapter)
    for number, (cell, done) in enumerate(
        zip(chapters.code(notebook), chapters.code(executed.nb), strict=True)
    ):
        if cell.source != done.source:
            return
        cell.outputs = done.outputs
        cell.execution_count = number + 1
    execution.keep(chapter, notebook, seconds)
