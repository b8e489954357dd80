import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gilib.data import (
    ChecksumError,
    DataError,
    DownloadError,
    data_directory,
    load_classification,
    load_uci,
    storage,
)
from gilib.data.storage import find_file, shipped_table, user_cache
from gilib.data.tables import regression_sets

YACHT = shipped_table("yacht")


class Handler(BaseHTTPRequestHandler):
    """Answers by path: good, truncated, altered, short by whole lines, empty, or not found."""

    def do_GET(self):
        kind = self.path.strip("/").split("/")[0]
        content = {
            "good": YACHT,
            "truncated": YACHT,
            "altered": YACHT.replace(b"0.125 0.11\n", b"0.125 0.12\n", 1),
            "short": YACHT[: YACHT.rindex(b"\n", 0, 5000) + 1],
            "cut": YACHT[:5001],
            "empty": b"",
            "abc": YACHT,
            "huge": YACHT,
            "endless": YACHT,
        }.get(kind)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        announced = {"abc": "abc", "huge": str(1 << 40), "endless": None}
        length = announced.get(kind, str(len(content)))
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content[:4000] if kind == "truncated" else content)

    def log_message(self, *arguments):
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def server():
    """A web server on this machine; yields its address."""
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def remote(server, empty_directory, monkeypatch):
    """Yacht as if it did not ship, at an address of the given kind; returns where the file should end."""

    def use(kind: str, address: str = server) -> Path:
        monkeypatch.setattr(storage, "shipped_table", lambda name: None)
        monkeypatch.setattr(regression_sets, "BASE_URL", f"{address}/{kind}")
        return empty_directory / "uci" / "yacht" / "data.txt"

    return use


def leftovers(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def test_fetched_once_checked_and_kept(remote, empty_directory, monkeypatch, capsys):
    target = remote("good")
    dataset = load_uci("yacht")
    assert dataset.sha256 == regression_sets.UCI_SETS["yacht"].sha256
    assert leftovers(empty_directory) == [target] and target.read_bytes() == YACHT
    assert "fetching yacht" in capsys.readouterr().err
    monkeypatch.setattr(regression_sets, "BASE_URL", "http://127.0.0.1:1")
    assert load_uci("yacht").sha256 == dataset.sha256


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("truncated", DownloadError, r"(?i)could not fetch http://127.*incomplete.*GILIB_DATA"),
        ("missing", DownloadError, r"could not fetch .*404.*save that file by other means as .*data\.txt"),
        ("altered", ChecksumError, r"does not hold the published values of yacht.*wanted 12a59d1c.*was"),
        ("short", DataError, r"shape \(\d+, 7\), wanted \(308, 7\) for yacht; it may be truncated"),
        ("abc", DownloadError, "Content-Length is 'abc', wanted a number of bytes.*GILIB_DATA"),
        ("huge", DownloadError, "1099511627776 bytes or more, at most 268435456 are taken"),
    ],
)
def test_bad_answers_leave_nothing_behind(remote, empty_directory, kind, error, message, recwarn):
    remote(kind)
    with pytest.raises(error, match=message):
        load_uci("yacht")
    assert leftovers(empty_directory) == [] and not recwarn.list


def test_an_answer_that_does_not_end_is_left(remote, empty_directory, monkeypatch):
    remote("endless")
    assert load_uci("yacht").x.shape == (308, 6)
    (empty_directory / "uci" / "yacht" / "data.txt").unlink()
    monkeypatch.setattr(storage, "MOST_BYTES", len(YACHT) - 1)
    with pytest.raises(DownloadError, match=f"{len(YACHT)} bytes or more, at most {len(YACHT) - 1} "):
        load_uci("yacht")
    assert leftovers(empty_directory) == []


def test_download_can_be_forbidden(remote):
    target = remote("good")
    with pytest.raises(DataError, match="yacht is not on this machine: save http.*GILIB_DATA.*download=True"):
        load_uci("yacht", download=False)
    assert not target.exists()


def test_a_damaged_copy_on_disk_is_named_with_its_remedy(remote):
    target = remote("good")
    target.parent.mkdir(parents=True)
    target.write_bytes(YACHT.replace(b"0.125 0.11\n", b"0.125 0.12\n", 1))
    with pytest.raises(ChecksumError, match="data.txt does not hold .*: delete that file, then load again"):
        load_uci("yacht")
    target.write_bytes(YACHT[:5000])
    with pytest.raises(DataError, match="delete that file, then load again"):
        load_uci("yacht")


def test_a_damaged_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(storage, "shipped_table", lambda name: YACHT[:5001])
    for load, name in ((load_uci, "yacht"), (load_classification, "spambase")):
        with pytest.raises(DataError, match="copy that ships with gilib .*: install gilib again"):
            load(name)


def test_a_folder_that_cannot_be_written_to(remote, empty_directory):
    remote("good")
    empty_directory.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot write to .*set the environment variable GILIB_DATA"):
        load_uci("yacht")


@pytest.mark.parametrize("place", ["uci/yacht", "yacht/data"])
@pytest.mark.parametrize("variable", ["GILIB_DATA", "cache"])
def test_layouts_that_are_found(empty_directory, monkeypatch, variable, place):
    root = empty_directory if variable == "GILIB_DATA" else user_cache()
    path = root / place / "data.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(YACHT)
    monkeypatch.setattr(storage, "shipped_table", lambda name: None)
    assert load_uci("yacht", download=False).name == "yacht"
    assert find_file("missing", f"{place}/data.txt") == path and find_file("missing") is None


def test_data_directory_is_the_variable_or_the_cache(empty_directory, monkeypatch):
    assert data_directory() == empty_directory
    monkeypatch.setenv("GILIB_DATA", os.path.join("~", "some data"))
    assert data_directory() == Path.home() / "some data"
    for unset in (lambda: monkeypatch.setenv("GILIB_DATA", ""), lambda: monkeypatch.delenv("GILIB_DATA")):
        unset()
        assert data_directory() == user_cache()


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", {}, Path.home() / ".cache" / "gilib"),
        ("win32", {"LOCALAPPDATA": "/c/d", "XDG_CACHE_HOME": "/a/b"}, Path("/c/d/gilib")),
        ("win32", {}, Path.home() / "AppData" / "Local" / "gilib"),
    ],
)
def test_user_cache_follows_the_platform(platform, environ, expected):
    assert user_cache(platform, environ) == expected
