"""Each chapter and its reference notebook hold the same code, and every checked cell is really compared."""

from pathlib import Path

import nbformat
import pytest

import chapters

CHAPTERS = chapters.chapters()
AGAIN = "run `make references` and read the difference"


def test_every_chapter_has_a_reference_and_no_reference_is_left_over():
    kept = {path.stem for path in Path(__file__).parent.glob("*.ipynb")}
    assert kept == {chapter.stem for chapter in CHAPTERS}, AGAIN


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_and_its_reference(chapter):
    """MyST leaves out lines that begin with a percent sign, as a wrapped number of per cent may."""
    read, reference = chapters.read(chapter), nbformat.read(chapters.reference(chapter), as_version=4)
    cells = chapters.code(read)
    kept = [(cell.source, cell.metadata) for cell in reference.cells]
    assert kept == [(cell.source, cell.metadata) for cell in cells], AGAIN
    unknown = {tag for cell in cells for tag in chapters.tags(cell)} - chapters.TAGS
    assert not unknown, f"unknown tags {sorted(unknown)}: a misspelt tag is silently ignored"
    for cell in reference.cells:
        checked = chapters.CHECKED in chapters.tags(cell)
        # nbval compares nothing in a cell without an execution count
        assert bool(cell.outputs) == (cell.execution_count is not None) == checked, AGAIN
    assert any("assert " in cell.source for cell in cells), f"{chapter.name} has no check cell"
    prose = [line for cell in read.cells if cell.cell_type == "markdown" for line in cell.source.split("\n")]
    assert not [line for line in prose if line.startswith("%")], "taken for a comment"
