"""Without a browser the site stage fails and says which command installs one; nothing installs it unasked."""

import shutil
import subprocess
import sys

import pytest

import browser
import stages

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
