"""The built book, served on 127.0.0.1, and a browser with the network cut off."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import browser as browsers

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "_build" / "html"

OFF = ("gpu", "quic", "background-networking", "component-update", "sync")
ARGUMENTS = ["--no-sandbox", "--no-first-run", *(f"--disable-{one}" for one in OFF)]
ARGUMENTS += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]


def pages():
    return sorted(path.relative_to(SITE).as_posix() for path in (SITE / "book").rglob("*.html"))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        """Nothing."""


@pytest.fixture(scope="session")
def site():
    if not (SITE / "index.html").is_file():
        pytest.fail("the book is not built: run `make book` first")
    return SITE


@pytest.fixture(scope="session")
def address(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    if missing := browsers.problem():
        pytest.fail(missing)
    with sync_playwright() as play:
        instance = play.chromium.launch(executable_path=browsers.find(), args=ARGUMENTS)
        yield instance
        instance.close()
