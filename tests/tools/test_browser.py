"""Without a browser, and without the right to install one unasked, the site stage says what to do."""

import os

import pytest

import browser


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    monkeypatch.setattr(browser, "PLACES", ())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("bare_machine")
def test_missing_browser_is_named_with_its_cure() -> None:
    assert browser.find() is None
    message = browser.ensure()
    assert message is not None
    assert "none was found" in message
    assert "Install Chromium or Chrome, then run `make test-site`" in message


def test_browser_on_the_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        browser.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "google-chrome" else None
    )
    assert browser.find() == "/usr/bin/google-chrome"
    assert browser.ensure() is None
