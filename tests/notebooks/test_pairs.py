"""Each chapter and its reference notebook hold the same code, and every checked cell is really compared."""

from pathlib import Path

import nbformat
import pytest

import chapters

CHAPTERS = chapters.chapters()
AGAIN = "run `make references` and read the difference"


def test_every_chapter_has_a_reference_and_no_reference_is_left_over() -> None:
    kept = {path.stem for path in Path(__file__).parent.glob("*.ipynb")}
    assert kept == {chapter.stem for chapter in CHAPTERS}, AGAIN


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_reference_holds_the_chapters_code(chapter: Path) -> None:
    reference = nbformat.read(chapters.reference(chapter), as_version=4)
    expected = [(cell.source, cell.metadata) for cell in chapters.code(chapters.read(chapter))]
    assert [(cell.source, cell.metadata) for cell in reference.cells] == expected, AGAIN


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_tags_are_known(chapter: Path) -> None:
    used = {tag for cell in chapters.code(chapters.read(chapter)) for tag in chapters.tags(cell)}
    assert used <= chapters.TAGS, (
        f"unknown tags {sorted(used - chapters.TAGS)}: a misspelt tag is silently ignored"
    )


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_only_checked_cells_keep_outputs(chapter: Path) -> None:
    reference = nbformat.read(chapters.reference(chapter), as_version=4)
    for cell in reference.cells:
        checked = chapters.CHECKED in chapters.tags(cell)
        # nbval compares nothing in a cell without an execution count
        assert bool(cell.outputs) == (cell.execution_count is not None) == checked, AGAIN


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_checks_something(chapter: Path) -> None:
    cells = chapters.code(chapters.read(chapter))
    assert any("assert " in cell.source for cell in cells), f"{chapter.name} has no check cell"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
def test_no_sentence_is_taken_for_a_comment(chapter: Path) -> None:
    """MyST leaves out lines that begin with a percent sign, as a wrapped number of per cent may."""
    cells = chapters.read(chapter).cells
    prose = [line for cell in cells if cell.cell_type == "markdown" for line in cell.source.split("\n")]
    assert not [line for line in prose if line.startswith("%")]
