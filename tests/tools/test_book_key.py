"""The execution cache of the book follows whatever a chapter computes from."""

import pytest

import book_key

SOURCES = ("gilib/a.py", "gilib/deep/b.py", "experiments/e.py", "results/r.jsonl", "constraints.txt")


@pytest.fixture
def tree(tmp_path):
    for name in SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
def test_key_changes_with_any_source(tree, name):
    before = book_key.book_key(tree)
    (tree / name).write_text(" ")
    assert book_key.book_key(tree) != before


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


def test_key_changes_when_a_file_comes_goes_or_moves(tree):
    keys = [book_key.book_key(tree)]
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
