"""The built pages as files: links and anchors resolve, nothing comes from elsewhere, the API is complete."""

from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from bs4 import BeautifulSoup

import gilib
import gilib_book
from tests.site.conftest import ROOT, SITE

HTML = sorted(SITE.rglob("*.html"))
HTML = [path for path in HTML if "_static" not in path.parts]
EMBEDDED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href"}


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(), "html.parser")


@cache
def anchors(path: Path) -> frozenset[str]:
    named = {tag["name"] for tag in soup(path).find_all("a", attrs={"name": True})}
    return frozenset(named | {tag["id"] for tag in soup(path).find_all(id=True)})


def problem(page: Path, link: str) -> str | None:
    """What is wrong with a link of the page, if anything."""
    target, anchor = urldefrag(link)
    if urlparse(link).scheme:
        return None
    path = (page.parent / unquote(target.split("?")[0])).resolve() if target else page
    path = path / "index.html" if path.is_dir() else path
    if not path.is_file():
        return f"{link}: no such file"
    if anchor and path.suffix == ".html" and unquote(anchor) not in anchors(path):
        return f"{link}: no such anchor"
    return None


def test_book_is_built(site: Path) -> None:
    assert len(HTML) > 3


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_links_resolve(page: Path) -> None:
    links = {tag["href"] for tag in soup(page).find_all("a", href=True)}
    assert sorted(filter(None, (problem(page, link) for link in links))) == []


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_nothing_is_fetched_from_elsewhere(page: Path) -> None:
    sources = [tag.get(key) for name, key in EMBEDDED.items() for tag in soup(page).find_all(name)]
    sources = [source for source in sources if source and not source.startswith("data:")]
    assert [source for source in sources if urlparse(source).netloc] == []
    assert sorted(filter(None, (problem(page, source) for source in sources))) == []


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_no_local_path_and_no_progress_bar_leak_into_the_page(page: Path) -> None:
    text = page.read_text()
    assert str(ROOT) not in text
    assert "it/s]" not in text


def test_api_page_shows_every_public_name() -> None:
    names = set(gilib_book.public_names(gilib))
    missing = names - anchors(SITE / "book" / "api.html")
    assert not missing, f"add the rooms of {sorted(missing)} to book/api.md"
