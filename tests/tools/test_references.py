"""What a reference notebook keeps and refuses, and how wide a chapter's lines are."""

import pytest
from nbformat import v4

import book_pages
import chapters
import references

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
TAGGED = {"tags": [chapters.CHECKED]}


def executed(*outputs, metadata=TAGGED):
    cell = v4.new_code_cell("code", outputs=list(outputs), execution_count=7, metadata=metadata)
    return v4.new_notebook(cells=[v4.new_markdown_cell("prose"), cell], metadata=KERNEL)


def printed(text, name="stdout"):
    return v4.new_output("stream", name=name, text=text)


FIGURE = v4.new_output("display_data", data={"image/png": "iVBORw0KGgo=", "text/plain": "<Figure>"})


def test_a_checked_cell_keeps_its_text_and_its_count_and_other_cells_nothing():
    (cell,) = references.strip(executed(printed("1.0\n"), printed("2.0\n")), "chapter").cells
    assert [output.text for output in cell.outputs] == ["1.0\n2.0\n"]
    assert cell.execution_count == 7
    (cell,) = references.strip(executed(printed("0.1 s\n"), FIGURE, metadata={}), "chapter").cells
    assert cell.outputs == []
    assert cell.execution_count is None


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((printed("1"), FIGURE), "chapter: .* may print text and nothing else, and this one also shows"),
        ((printed("bar", "stderr"),), "also shows stderr"),
        ((), "chapter: a cell tagged nbval-check-output prints nothing"),
        ((printed("\n"),), "prints nothing"),
    ],
)
def test_a_checked_cell_that_cannot_be_compared_is_refused(outputs, message):
    with pytest.raises(SystemExit, match=message):
        references.strip(executed(*outputs), "chapter")


def test_equal_notebooks_are_equal_files(tmp_path):
    for name in ("a", "b"):
        chapters.write(references.strip(executed(printed("1")), "chapter"), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_chapter_without_kernel_is_named(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```{code-cell} ipython3\n1 + 1\n```\n")
    with pytest.raises(ValueError, match="page.md has code cells but no kernelspec in its front matter"):
        chapters.read(page)


WIDEST = 84  # characters of a line that a reader sees without unfolding: they fit a page of 1440 pixels
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_visible_lines_are_not_too_wide(chapter):
    cells = chapters.code(chapters.read(chapter, book_pages.fold_checks(chapter.read_text())))
    shown = [cell for cell in cells if not FOLDED & set(chapters.tags(cell))]
    assert [line for cell in shown for line in cell.source.splitlines() if len(line) > WIDEST] == []
