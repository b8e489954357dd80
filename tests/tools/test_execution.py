"""Chapters executed before the build: kept under what the build looks for, and left to it when they fail."""

import pytest

import book_key
import chapters
import execution

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
