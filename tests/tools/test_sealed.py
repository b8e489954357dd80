"""What a sealed stage can reach: this machine, and nothing else."""

import subprocess
import sys

import pytest

import stages

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
    asks = {path.relative_to(stages.ROOT).as_posix() for path in asks} - {"tests/tools/test_sealed.py"}
    assert asks == set(stages.PUBLISHED)
    assert "data" not in stages.ALL and stages.STAGES["data"].needs_data
