"""What a build says of itself: which chapters failed, on their pages and in its last line."""

import io
import sys
from pathlib import Path

import pytest
from sphinx.application import Sphinx

import book

FAILS = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3, language: python}
---

# A chapter

```{code-cell} ipython3
from myst_nb import glue
raise OSError("<no> network")
glue("answer", 42)
```

It is {glue:text}`answer` <b>in all</b>.
"""


def build(folder: Path) -> str:
    """Build a book of two pages as the configuration of ours would; its warnings."""
    (folder / "book").mkdir()
    (folder / "book" / "fails.md").write_text(FAILS)
    (folder / "book" / "works.md").write_text(FAILS.replace("raise", "#"))
    (folder / "index.md").write_text("# A book\n\n```{toctree}\nbook/fails\nbook/works\n```\n")
    settings = {"extensions": ["myst_nb", "book_pages"], "html_theme": "sphinx_book_theme"}
    settings |= {"nb_execution_mode": "cache", "nb_execution_show_tb": True}
    settings |= {"nb_execution_cache_path": str(folder / "cache")}
    warnings = io.StringIO()
    site, read = folder / "_build" / "html", folder / "_build" / ".doctrees"
    Sphinx(folder, None, site, read, "html", settings, status=None, warning=warnings).build()
    return warnings.getvalue()


def test_a_chapter_that_failed_says_so_on_its_page_and_in_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(book, "SITE", tmp_path / "_build" / "html")
    monkeypatch.setattr(book, "LOG", tmp_path / "book.log")
    assert book.verdict().startswith("The book was not built; ")
    book.LOG.write_text(build(tmp_path))
    fails, works = ((book.SITE / "book" / f"{name}.html").read_text() for name in ("fails", "works"))
    assert "This chapter failed" in fails and "OSError: &lt;no&gt; network</p>" in fails
    assert "chapter-failed" not in works and "It is 42" in works.replace('<span class="pasted-text">', "")
    assert book.failed() == {"fails": "OSError: <no> network"}
    assert "1 chapter of the book failed, as the page says: fails (OSError: <no> network). " in book.verdict()
    assert any("No key 'answer'" in line for line in book.warnings())


def test_what_is_noise_goes_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("ROOT", "SITE"):
        monkeypatch.setattr(book, name, tmp_path)
    monkeypatch.setattr(book, "LOG", tmp_path / "_build" / "book.log")
    kernel = "import sys; print('chapter 1 of 1: one, 3 s'); print('over TCP', file=sys.stderr)"
    monkeypatch.setattr(book, "EXECUTE", [sys.executable, "-c", kernel])
    sphinx = "print('reading\\n\\x1b[91ma.md:3: WARNING: a hole\\x1b[0m'); raise SystemExit(1)"
    monkeypatch.setattr(book, "WRITE", [sys.executable, "-c", sphinx])
    (tmp_path / "index.html").touch()
    assert book.main() == 1
    told = capfd.readouterr()
    assert not told.err and "over TCP" not in told.out and "reading" not in told.out
    first, _, warning = told.out.splitlines()
    assert (first, warning) == ("chapter 1 of 1: one, 3 s", "a.md:3: WARNING: a hole")
    assert book.verdict().startswith("The book was built, but not without warnings")
    assert "over TCP" in book.LOG.read_text() and "reading" in book.LOG.read_text()
    monkeypatch.setattr(book, "WRITE", [sys.executable, "-c", "pass"])
    assert book.main() == 0
