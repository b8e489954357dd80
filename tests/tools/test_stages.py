"""The runner of the checks: which stages run, what fails, and what a sealed one can reach."""

import subprocess
import sys

import pytest

import stages

PASS, FAIL = [sys.executable, "-c", "pass"], [sys.executable, "-c", "raise SystemExit(3)"]


@pytest.fixture
def three(monkeypatch, tmp_path):
    table = {
        "first": stages.Stage((FAIL, PASS)),
        "second": stages.Stage((PASS,)),
        "third": stages.Stage((PASS,), needs_book=True),
    }
    monkeypatch.setattr(stages, "STAGES", table)
    monkeypatch.setattr(stages, "ALL", tuple(table))
    monkeypatch.setattr(stages, "SITE", tmp_path)


@pytest.mark.usefixtures("three")
def test_one_failure_fails_all_and_hides_none(capfd):
    assert stages.main([]) == 1
    table = capfd.readouterr().out.splitlines()[-4:]
    assert [line.split(" s ")[-1].strip()[:7] for line in table[:3]] == ["FAILED", "passed", "NOT RUN"]
    assert table[3].startswith("total")


@pytest.mark.usefixtures("three")
def test_chosen_stages_decide_the_exit_code():
    assert stages.main(["second"]) == 0
    assert stages.main(["third"]) == 1  # what could not run has not passed


@pytest.mark.usefixtures("three")
def test_unknown_stage_is_named():
    with pytest.raises(SystemExit, match="no stage fourth; choose from first, second, third"):
        stages.main(["fourth"])


def test_what_takes_one_process_runs_beside_the_book(monkeypatch, tmp_path, capfd):
    """Lint ends only once the book has begun to wait for it; what it prints stands by itself."""
    there = tmp_path / "there"
    meet = "import pathlib, time\nwhile not pathlib.Path(r'{0}').exists(): time.sleep(0.01)"
    touch = f"import pathlib; pathlib.Path(r'{there}').touch(); print('linted')"
    table = {
        "lint": stages.Stage(([sys.executable, "-c", touch],)),
        "unit": stages.Stage((PASS,)),
        "book": stages.Stage(([sys.executable, "-c", meet.format(there)],)),
    }
    for name, value in {"STAGES": table, "ALL": tuple(table), "PASSED": tmp_path / "passed"}.items():
        monkeypatch.setattr(stages, name, value)
    monkeypatch.setattr(stages, "SITE", tmp_path / "site")
    monkeypatch.setattr(stages, "READ", tmp_path / "read")
    assert stages.main([]) == 0
    printed = capfd.readouterr().out
    heads = [line for line in printed.splitlines() if line.startswith("===")]
    assert heads == ["=== unit", "=== book", "=== lint"] and "linted" in printed
    assert [row.split()[0] for row in printed.splitlines()[-5:-2]] == list(table)


class TestBook:
    """What of an earlier build counts in the next."""

    @pytest.fixture(autouse=True)
    def built(self, monkeypatch, tmp_path):
        for name in ("SITE", "READ", "PASSED"):
            monkeypatch.setattr(stages, name, tmp_path / name)
        for name in ("SITE", "READ"):
            (tmp_path / name).mkdir()
        return tmp_path

    def left(self, built, command=PASS, afresh=False):
        assert stages.run("book", stages.Stage((command,)), afresh) is (command is PASS)
        return {path.name for path in built.iterdir()}

    def test_a_chapter_that_failed_fails_again(self, built):
        assert self.left(built) == {"PASSED"}  # nothing says that what is there has passed
        assert self.left(built, FAIL) == set()
        (built / "READ").mkdir()
        assert self.left(built) == {"PASSED"}

    def test_pages_stay_while_text_alone_changes(self, built, monkeypatch):
        stages.PASSED.write_text(stages.book_key.build_key())
        assert self.left(built) == {"SITE", "READ", "PASSED"}
        monkeypatch.setattr(stages.book_key, "build_key", lambda: "of another library")
        assert self.left(built) == {"PASSED"}

    def test_all_stages_together_build_from_nothing(self, built):
        stages.PASSED.write_text(stages.book_key.build_key())
        assert self.left(built, afresh=True) == {"PASSED"}


def test_processes_run_on_one_thread():
    assert stages.environment()["OMP_NUM_THREADS"] == "1"


REFUSED = {
    "an address": "import socket; socket.create_connection(('192.0.2.1', 80), timeout=1)",
    "a name": "import urllib.request; urllib.request.urlopen('http://example.org', timeout=1)",
    "a kernel": (
        "import nbformat.v4 as v4, nbclient; "
        "cell = v4.new_code_cell('import socket; socket.create_connection((\"192.0.2.1\", 80), timeout=1)'); "
        "nbclient.NotebookClient(v4.new_notebook(cells=[cell])).execute()"
    ),
}
LOOPBACK = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(("localhost", server.getsockname()[1]))
assert client.connect_ex(("192.0.2.1", 80)) != 0
assert not os.environ.get("GILIB_DATA") and not os.listdir(os.environ["XDG_CACHE_HOME"])
"""


def sealed(code, cache):
    settings = stages.environment(str(cache))
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=stages.ROOT, env=settings, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_what_is_elsewhere_is_refused(code, tmp_path):
    done = sealed(code, tmp_path)
    assert done.returncode == 1
    assert "do without a network" in done.stderr


def test_this_machine_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("GILIB_DATA", str(tmp_path))
    done = sealed(LOOPBACK, tmp_path)
    assert done.returncode == 0, done.stderr


def test_tests_notebooks_and_book_are_sealed():
    sealed = {name for name, stage in stages.STAGES.items() if stage.sealed}
    assert sealed == {"unit", "runner", "notebooks", "book"}


def test_what_skips_without_published_files_has_a_stage_with_them():
    tests = stages.ROOT / "tests"
    texts = {path: path.read_text() for path in tests.rglob("test_*.py")}
    asks = {path for path, text in texts.items() if "pytest.skip(" in text and "GILIB_DATA" in text}
    asks = {path.relative_to(stages.ROOT).as_posix() for path in asks} - {"tests/tools/test_stages.py"}
    assert asks == set(stages.PUBLISHED)
    assert "data" not in stages.ALL and stages.STAGES["data"].needs_data
