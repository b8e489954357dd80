"""What one takes away from a page: every chapter as a notebook, by a button."""

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Browser

import chapters
from tests.site.conftest import ROOT
from tests.site.visits import visit


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_a_chapter_is_there_as_a_notebook(site: Path, chapter: Path) -> None:
    notebook = nbformat.read(site / "notebooks" / f"{chapter.stem}.ipynb", as_version=4)
    nbformat.validate(notebook)
    expected = [cell.source for cell in chapters.code(chapters.read(chapter))]
    assert [cell.source for cell in chapters.code(notebook)] == expected


def test_the_button_downloads_it(browser: Browser, address: str, tmp_path: Path) -> None:
    page = (ROOT / "book" / "chapters" / "one-idea.md").relative_to(ROOT).with_suffix(".html").as_posix()
    with visit(browser, address, page, "light") as found:
        button = found.page.get_by_role("link", name="Download as a notebook").first
        with found.page.expect_download() as download:
            button.click()
        download.value.save_as(tmp_path / "chapter.ipynb")
        assert download.value.suggested_filename == "one-idea.ipynb"
    assert len(nbformat.read(tmp_path / "chapter.ipynb", as_version=4).cells) > 10
