"""The runner of the checks: every stage runs, one failure fails the whole, and the table says which."""

import sys
from pathlib import Path

import pytest

import stages

PASS, FAIL = [sys.executable, "-c", "pass"], [sys.executable, "-c", "raise SystemExit(3)"]


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = {
        "first": stages.Stage((FAIL, PASS)),
        "second": stages.Stage((PASS,)),
        "third": stages.Stage((PASS,), needs_book=True),
    }
    monkeypatch.setattr(stages, "STAGES", table)
    monkeypatch.setattr(stages, "ALL", tuple(table))
    monkeypatch.setattr(stages, "SITE", tmp_path)


@pytest.mark.usefixtures("three")
def test_one_failure_fails_all_and_hides_none(capfd: pytest.CaptureFixture[str]) -> None:
    assert stages.main([]) == 1
    table = capfd.readouterr().out.splitlines()[-4:]
    assert [line.split(" s ")[-1].strip()[:7] for line in table[:3]] == ["FAILED", "passed", "NOT RUN"]
    assert table[3].startswith("total")


@pytest.mark.usefixtures("three")
def test_chosen_stages_decide_the_exit_code() -> None:
    assert stages.main(["second"]) == 0
    assert stages.main(["third"]) == 1  # what could not run has not passed


@pytest.mark.usefixtures("three")
def test_unknown_stage_is_named() -> None:
    with pytest.raises(SystemExit, match="no stage fourth; choose from first, second, third"):
        stages.main(["fourth"])


def test_book_is_read_afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A chapter that failed must fail again; what an earlier build has read or written does not count."""
    for name in ("SITE", "READ"):
        monkeypatch.setattr(stages, name, tmp_path / name)
        (tmp_path / name).mkdir()
    assert stages.run("book", stages.Stage((PASS,)))
    assert list(tmp_path.iterdir()) == []


def test_processes_run_on_one_thread() -> None:
    assert stages.environment()["OMP_NUM_THREADS"] == "1"


def test_make_knows_every_stage() -> None:
    makefile = (stages.ROOT / "Makefile").read_text()
    assert f"STAGES := {' '.join(stages.STAGES)}\n" in makefile
