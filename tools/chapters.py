"""The chapters as notebooks, read as the book reads them, and the reference notebook of each."""

from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]
CHECKED = "nbval-check-output"
TAGS = {
    CHECKED,
    "hide-input",
    "hide-output",
    "hide-cell",
    "remove-input",
    "remove-output",
    "remove-cell",
    "remove-stderr",
    "raises-exception",
}


def chapters(root: Path = ROOT) -> list[Path]:
    """Every page of the book that holds code cells; what an editor keeps in hidden folders is none."""
    pages = (page for page in (root / "book").rglob("*.md") if not page.parent.name.startswith("."))
    return [page for page in sorted(pages) if "{code-cell}" in page.read_text()]


def read(chapter: Path, text: str | None = None) -> NotebookNode:
    """The chapter's code cells with their tags, and its kernel; `text` in place of what the file holds."""
    config = MdParserConfig(enable_extensions={"colon_fence", "dollarmath", "amsmath", "deflist"})
    notebook = read_myst_markdown_notebook(text or chapter.read_text(), config, path=chapter)
    if "kernelspec" not in notebook.metadata:
        raise ValueError(
            f"{chapter} has code cells but no kernelspec in its front matter; see CONTRIBUTING.md"
        )
    return notebook


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def reference(chapter: Path) -> Path:
    """Where the chapter's reference outputs are kept."""
    return ROOT / "tests" / "notebooks" / f"{chapter.stem}.ipynb"


def write(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook so that equal notebooks are equal files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook, version=4, indent=1, sort_keys=True) + "\n")
