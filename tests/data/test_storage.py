import os
from pathlib import Path

import pytest

from gilib.data import ChecksumError, DataError, data_directory, load_classification, load_uci, storage
from gilib.data.storage import find_file, shipped_table, user_cache

YACHT = shipped_table("yacht")


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (YACHT[:5001], DataError, "is not a table of numbers"),
        (
            YACHT[: YACHT.rindex(b"\n", 0, 5000) + 1],
            DataError,
            r"shape \(\d+, 7\), wanted \(308, 7\) for yacht",
        ),
        (
            YACHT.replace(b"0.125 0.11\n", b"0.125 0.12\n", 1),
            ChecksumError,
            "published values of yacht.*wanted 12a59d1c",
        ),
    ],
)
def test_a_damaged_package_is_named_with_its_remedy(monkeypatch, content, error, message):
    monkeypatch.setattr(storage, "shipped_table", lambda name: content)
    with pytest.raises(error, match=f"copy that ships with gilib .*{message}.*: install gilib again"):
        load_uci("yacht")
    with pytest.raises(DataError, match="copy that ships with gilib .*: install gilib again"):
        load_classification("spambase")


@pytest.mark.parametrize("variable", ["GILIB_DATA", "cache"])
def test_places_where_files_are_found(empty_directory, variable):
    path = (empty_directory if variable == "GILIB_DATA" else user_cache()) / "yacht" / "data.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(YACHT)
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
