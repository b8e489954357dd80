"""The build of the book: what is executed and kept, under which key, and what it says of failures."""

import io
import sys

import pytest
from jupyter_client.provisioning import local_provisioner
from sphinx.application import Sphinx

import book
import book_key
import chapters
import execution
import forks

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


def build(folder):
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


def test_a_chapter_that_failed_says_so_on_its_page_and_in_the_last_line(tmp_path, monkeypatch):
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


def test_what_is_noise_goes_to_a_file(tmp_path, monkeypatch, capfd):
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


CHAPTER = """---
kernelspec: {{name: python3, display_name: Python 3, language: python}}
---

# A chapter

```{{code-cell}} ipython3
{code}
```
"""

MORTAL = """
import os, pathlib
died = pathlib.Path({died!r})
if (times := len(died.read_text())) < {deaths}:
    died.write_text("x" * (times + 1))
    os._exit(1)
times
"""


@pytest.fixture
def one(monkeypatch, tmp_path):
    chapter = tmp_path / "one.md"
    monkeypatch.setattr(chapters, "chapters", lambda: [chapter])
    monkeypatch.setattr(book_key, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(local_provisioner, "launch_kernel", local_provisioner.launch_kernel)
    forks.use()
    return chapter


def test_what_was_executed_is_found_until_the_code_changes(one, capfd):
    one.write_text(CHAPTER.format(code="print(6 * 7)"))
    assert execution.missing() == [one]
    execution.main()
    assert capfd.readouterr().out.startswith("chapter 1 of 1: one, ")
    assert execution.missing() == []
    kept = execution.cache().merge_match_into_notebook(execution.notebook(one))[1]
    assert [cell.outputs[0].text for cell in chapters.code(kept)] == ["42\n"]
    one.write_text(CHAPTER.format(code="print(6 * 7)").replace("A chapter", "Another heading"))
    assert execution.missing() == []
    one.write_text(CHAPTER.format(code="print(6 * 9)"))
    assert execution.missing() == [one]


def test_failures_are_not_kept(one, capsys):
    one.write_text(CHAPTER.format(code="print(1 / 0)"))
    execution.main()
    assert capsys.readouterr().out == "chapter 1 of 1: one, FAILED: ZeroDivisionError: division by zero\n"
    assert execution.missing() == [one]


def test_a_cell_without_end_is_named(one, monkeypatch):
    monkeypatch.setattr(execution, "SECONDS", 1)
    one.write_text(CHAPTER.format(code="import time; time.sleep(60)"))
    assert execution.execute(one).problem.startswith("CellTimeoutError: A cell timed out")


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_kernel_that_dies_is_started_once_more(one, tmp_path, deaths):
    died = tmp_path / "died"
    died.touch()
    one.write_text(CHAPTER.format(code=MORTAL.format(died=str(died), deaths=deaths)))
    run = execution.execute(one)
    assert len(died.read_text()) == deaths
    assert bool(run.problem) == (deaths == 2)
    if not run.problem:
        assert chapters.code(run.notebook)[0].outputs[0].data["text/plain"] == "1"


SOURCES = ("gilib/a.py", "gilib/deep/b.py", "experiments/e.py", "results/r.jsonl", "constraints.txt")


@pytest.fixture
def tree(tmp_path):
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_pages_are_made_with_more_than_results(tree, monkeypatch):
    """With whatever lies beside their prose, their cells, and what the repository is called."""
    for name in ("tools/page.py", "book/_static/page.css", "_toc.yml", "gilib/new.py"):
        before = book_key.build_key(tree)
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("1")
        assert book_key.build_key(tree) != before
    chapter = "# Title\n\nProse.\n\n```{code-cell} ipython3\n1 + 1\n```\n"
    (tree / "book" / "chapter.md").write_text(chapter)
    before = book_key.build_key(tree)
    (tree / "book" / "chapter.md").write_text(chapter.replace("Prose", "Better prose"))
    assert book_key.build_key(tree) == before
    (tree / "book" / "chapter.md").write_text(chapter.replace("1 + 1", "1 + 2"))
    assert book_key.build_key(tree) != before
    (tree / "book" / "chapter.md").write_text(chapter)
    assert book_key.build_key(tree) == before
    monkeypatch.setenv("GILIB_REPOSITORY", "https://example.org/gilib")
    assert book_key.build_key(tree) != before


def test_key_changes_when_a_source_changes_comes_goes_or_moves(tree):
    keys = [book_key.book_key(tree)]
    for name in SOURCES:
        (tree / name).write_text(" ")
        keys.append(book_key.book_key(tree))
    (tree / "gilib" / "c.py").write_text("3")
    keys.append(book_key.book_key(tree))
    (tree / "gilib" / "c.py").rename(tree / "gilib" / "d.py")
    keys.append(book_key.book_key(tree))
    (tree / "gilib" / "a.py").unlink()
    keys.append(book_key.book_key(tree))
    assert len(set(keys)) == len(keys)


def test_key_ignores_compiled_files_and_everything_else(tree):
    before = book_key.book_key(tree)
    (tree / "gilib" / "__pycache__").mkdir()
    (tree / "gilib" / "__pycache__" / "a.pyc").write_text("compiled")
    (tree / "README.md").write_text("read me")
    assert book_key.book_key(tree) == before
    assert book_key.cache_folder(tree).name == f".jupyter_cache-{before}"
