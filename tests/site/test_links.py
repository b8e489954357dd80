"""The built pages as files: links and anchors resolve, nothing comes from elsewhere, the API is complete."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from bs4 import BeautifulSoup

import chapters
import gilib
import gilib_book
import pasted
from tests.site.conftest import ROOT, SITE

HTML = sorted(SITE.rglob("*.html"))
HTML = [path for path in HTML if "_static" not in path.parts]
EMBEDDED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href"}
COLOURED = re.compile(r'<span class="\w{1,3}">([^<]*)</span>')  # words of code, seven in ten elements


def parsed(path: Path) -> BeautifulSoup:
    return BeautifulSoup(COLOURED.sub(r"\1", path.read_text()), "html.parser")


@cache
def soup(path: Path) -> BeautifulSoup:
    return parsed(path)


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


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_numbers_in_sentences_are_typeset(page: Path) -> None:
    """`tools/pasted.py` has seen them: no hyphen for a minus, no name of a type."""
    shown = [tag.get_text() for tag in soup(page).select(".pasted-text")]
    assert [text for text in shown if text.startswith("-") or pasted.typeset(text) != text] == []


UNREAD = re.compile(
    r"\{(?:glue|numref|ref|eq|cite|py|term|doc)\b|Alias for field number"
)  # a role that nothing has read, a docstring that nobody has written
PASTES = re.compile(r"\{glue:text\}`")
CELLS = re.compile(r"^```+\{code-cell\}.*?^```+$", re.M | re.S)
PAGES = {SITE / path.relative_to(ROOT).with_suffix(".html"): path for path in chapters.chapters()}


def holes(html: BeautifulSoup) -> list[str]:
    """What a page lacks: numbers pasted empty, roles as they were typed, the results of a chapter."""
    found = [
        f"nothing is pasted: {tag.parent}"
        for tag in html.select(".pasted-text")
        if not tag.get_text().strip()
    ]
    found += [f"a chapter failed: {tag.get_text()}" for tag in html.select(".chapter-failed")]
    for tag in html.select("pre, code, script, style, .math"):
        tag.extract()
    return found + [f"not read: {role}" for role in UNREAD.findall(html.get_text())]


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_no_page_has_a_hole(page: Path) -> None:
    html = parsed(page)  # of which parts are taken out
    if page in PAGES:  # what is pasted without a key leaves nothing at all
        typed = PASTES.findall(CELLS.sub("", PAGES[page].read_text()))
        assert len(html.select(".pasted-text")) >= len(typed)
    assert holes(html) == []


def test_holes_are_seen() -> None:
    page = (
        'From <span class="pasted-text"> </span> to {numref}`fig-a`, {glue:text}`c`, '
        '<code>{ref}`b`</code>, <i class="math">{ref}</i>, Alias for field number 0'
    )
    assert [hole.partition(":")[0] for hole in holes(BeautifulSoup(page, "html.parser"))] == [
        "nothing is pasted",
        "not read",
        "not read",
        "not read",
    ]


API = sorted((SITE / "book" / "api").glob("*.html"))


@pytest.mark.parametrize("page", API, ids=lambda path: path.stem)
def test_formulas_of_docstrings_are_set(page: Path) -> None:
    html = BeautifulSoup(page.read_text(), "html.parser").select_one("article")
    assert html is not None
    formulas = [tag.extract().get_text() for tag in html.select(".math")]
    known = {"posteriors": r"\(\displaystyle \mathrm{Σ} = \mathrm{Ψ} / (ν + O + 1)\)"}
    assert known.get(page.stem) in [None, *formulas]
    for tag in html.select("pre, code"):
        tag.extract()
    assert re.findall(r":math:|(?<!\w)\$\S", html.get_text()) == []
    assert (
        re.findall(r"\(\*args\b|Annotated\[", "".join(tag.get_text() for tag in html.select("dt.sig"))) == []
    )


def test_api_pages_show_every_public_name() -> None:
    missing = set(gilib_book.public_names(gilib)).difference(*map(anchors, API))
    assert not missing, f"add the rooms of {sorted(missing)} to a page of book/api"


@pytest.mark.parametrize("page", API, ids=lambda path: path.stem)
def test_every_entry_leads_back_to_the_book(page: Path) -> None:
    entries = soup(page).select("section > dl.py")
    assert entries and all(entry.select("p.derived a.reference") for entry in entries)


@pytest.mark.parametrize("name", ["gilib.fit", "gilib.Gaussian", "gilib.Network.draw", "gilib.plots.band"])
def test_names_in_code_lead_to_the_api(name: str) -> None:
    page = soup(SITE / "book" / "chapters" / "global-inducing-points.html")
    links = {tag["href"].rpartition("#")[2] for tag in page.select(".cell_input a.sphinx-codeautolink-a")}
    assert name in links
