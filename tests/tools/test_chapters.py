"""What every chapter keeps to, read as the book reads it."""

import pytest

import book_pages
import chapters

WIDEST = (
    84  # characters of a line of code that a reader sees without unfolding: they fit a page of 1440 pixels
)
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


def long_lines(chapter, text):
    """Lines of visible cells that are too wide."""
    cells = chapters.code(chapters.read(chapter, book_pages.fold_checks(text)))
    shown = [cell for cell in cells if not FOLDED & set(chapters.tags(cell))]
    return [line for cell in shown for line in cell.source.splitlines() if len(line) > WIDEST]


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_visible_lines_are_not_too_wide(chapter):
    assert long_lines(chapter, chapter.read_text()) == []
