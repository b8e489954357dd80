"""A file is fetched complete and checked, or not at all, and the error says what to do."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files

import pytest

from experiments.images import download
from experiments.images.download import DownloadError, fetch
from gilib.data import ChecksumError, DataError
from gilib.data.loading import shipped

YACHT = shipped(files("gilib.data"), "yacht")


class Handler(BaseHTTPRequestHandler):
    """Answers by path: good, truncated, altered, of a wrong length or none, or not found."""

    def do_GET(self):
        kind = self.path.strip("/")
        if kind == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        if kind != "endless":
            announced = {"abc": "abc", "huge": str(1 << 40)}
            self.send_header("Content-Length", announced.get(kind, str(len(YACHT))))
        self.end_headers()
        altered = YACHT.replace(b"0.125 0.11\n", b"0.125 0.12\n", 1)
        self.wfile.write({"truncated": YACHT[:4000], "altered": altered}.get(kind, YACHT))

    def log_message(self, *arguments):
        """Keep the test's output clean."""


@pytest.fixture(scope="module")
def server():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(empty_directory):
    return empty_directory / "uci" / "yacht" / "data.txt"


def check(content):
    if content != YACHT:
        raise ChecksumError("other values")


def leftovers(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("truncated", DownloadError, r"(?i)could not fetch http://127.*incomplete.*GILIB_DATA"),
        ("missing", DownloadError, r"could not fetch .*404.*save that file by other means as .*data\.txt"),
        ("altered", ChecksumError, "other values"),
        ("abc", DownloadError, "Content-Length is 'abc', wanted a number of bytes.*GILIB_DATA"),
        ("huge", DownloadError, "1099511627776 bytes or more, at most 268435456 are taken"),
    ],
)
def test_bad_answers_leave_nothing_behind(server, target, empty_directory, kind, error, message, recwarn):
    with pytest.raises(error, match=message):
        fetch(f"{server}/{kind}", target, check)
    assert leftovers(empty_directory) == [] and not recwarn.list


def test_an_answer_that_does_not_end_is_left(server, target, empty_directory, monkeypatch):
    fetch(f"{server}/endless", target, check)
    target.unlink()
    monkeypatch.setattr(download, "MOST_BYTES", len(YACHT) - 1)
    with pytest.raises(DownloadError, match=f"{len(YACHT)} bytes or more, at most {len(YACHT) - 1} "):
        fetch(f"{server}/endless", target, check)
    assert leftovers(empty_directory) == []


def test_a_folder_that_cannot_be_written_to(server, target, empty_directory):
    empty_directory.write_text("a file where the folder should be")
    with pytest.raises(DataError, match="cannot write to .*set the environment variable GILIB_DATA"):
        fetch(f"{server}/good", target, check)
