"""The runner of the checks: which stages run, what fails, what a sealed one reaches, and the browser."""

import shutil
import subprocess
import sys

import pytest

import browser
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
    assert sealed == {"unit", "processes", "notebooks", "book"}


def test_what_skips_without_published_files_has_a_stage_with_them():
    tests = stages.ROOT / "tests"
    texts = {path: path.read_text() for path in tests.rglob("test_*.py")}
    asks = {path for path, text in texts.items() if "pytest.skip(" in text and "GILIB_DATA" in text}
    asks = {path.relative_to(stages.ROOT).as_posix() for path in asks} - {"tests/tools/test_stages.py"}
    assert asks == set(stages.PUBLISHED)
    assert "data" not in stages.ALL and stages.STAGES["data"].needs_data


INSTALLS = ["apt-get -qq update", "apt-get -qq install -y --no-install-recommends chromium"]
NONE = "The site tests read the built book in a browser, and none was found: "


def machine(monkeypatch, *programs):
    """A machine that has these programs and no others."""
    path = {name: f"/usr/bin/{name}" for name in programs}
    monkeypatch.setattr(browser.shutil, "which", path.get)
    monkeypatch.setattr(browser, "PLACES", ())


@pytest.mark.parametrize(
    ("programs", "cure"),
    [
        (["apt-get"], "install one with `apt-get update && apt-get install -y chromium` (as root)."),
        (["brew"], "install one with `brew install --cask google-chrome`."),
        ([], f"install Chromium or Chrome, so that PATH has one of {', '.join(browser.NAMES)}."),
    ],
)
def test_missing_browser_is_named_with_its_cure(monkeypatch, programs, cure):
    machine(monkeypatch, *programs)
    assert browser.find() is None
    assert browser.problem() == NONE + cure


def test_browser_on_the_path_is_taken(monkeypatch):
    machine(monkeypatch, "google-chrome", "apt-get")
    assert browser.find() == "/usr/bin/google-chrome"
    assert browser.problem() is None


def test_site_stage_fails_without_a_browser_and_starts_no_program(monkeypatch, capfd):
    machine(monkeypatch, "apt-get")

    def start(*args, **settings):
        raise AssertionError(f"started {args}")

    monkeypatch.setattr(subprocess, "run", start)
    assert not stages.run("site", stages.STAGES["site"])
    assert capfd.readouterr().err.startswith(NONE)


@pytest.mark.parametrize(
    ("has_browser", "user", "expected"),
    [(True, 0, ["make test"]), (False, 1000, ["make test"]), (False, 0, [*INSTALLS, "make test"])],
)
def test_ci_installs_a_browser_first(tmp_path, has_browser, user, expected):
    """`.ci/run` with programs that only note that they were called."""
    log = tmp_path / "log"
    note = f'echo "${{0##*/}} $*" >> {log}'
    programs = {"make": note, "apt-get": note, "id": f"echo {user}"}
    programs["python3"] = f"exit {int(not has_browser)}"
    for name, line in programs.items():
        (tmp_path / name).write_text(f"#!{shutil.which('bash')}\n{line}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "")
    script = [shutil.which("bash") or "", str(stages.ROOT / ".ci" / "run")]
    subprocess.run(script, env={"PATH": str(tmp_path)}, check=True, capture_output=True)
    called = log.read_text().splitlines()
    assert [line for line in called if line != "make test-data"] == expected  # where there are data beside


def test_as_a_program_it_prints_the_path_or_fails_with_the_sentence(tmp_path):
    program = [sys.executable, str(stages.ROOT / "tools" / "browser.py")]
    (tmp_path / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "chromium").chmod(0o755)
    found = subprocess.run(program, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert found.stdout == f"{tmp_path / 'chromium'}\n"
    bare = "import sys, browser; browser.PLACES = (); sys.exit(browser.problem())"
    there = {"PATH": str(tmp_path / "nothing"), "PYTHONPATH": str(stages.ROOT / "tools")}
    failed = subprocess.run(
        [*program[:1], "-c", bare], env=there, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1 and failed.stderr.startswith(NONE)
