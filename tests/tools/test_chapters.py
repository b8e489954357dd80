"""What every chapter keeps to, read as the book reads it."""

import pytest

import book_pages
import chapters

WIDEST = 84  # characters of a line that a reader sees without unfolding: they fit a page of 1440 pixels
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_visible_lines_are_not_too_wide(chapter):
    cells = chapters.code(chapters.read(chapter, book_pages.fold_checks(chapter.read_text())))
    shown = [cell for cell in cells if not FOLDED & set(chapters.tags(cell))]
    assert [line for cell in shown for line in cell.source.splitlines() if len(line) > WIDEST] == []
