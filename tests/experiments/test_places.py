"""Where files are looked up."""

import os
from pathlib import Path

import pytest

from experiments.places import data_directory, find_file, user_cache


@pytest.mark.parametrize("variable", ["GILIB_DATA", "cache"])
def test_places_where_files_are_found(empty_directory, variable):
    path = (empty_directory if variable == "GILIB_DATA" else user_cache()) / "yacht" / "data.txt"
    path.parent.mkdir(parents=True)
    path.write_text("a file")
    assert find_file("missing", "yacht/data.txt") == path and find_file("missing") is None


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
