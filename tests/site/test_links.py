"""The built pages as files: links and anchors resolve, nothing comes from elsewhere, the API is complete."""

import re
from dataclasses import dataclass
from functools import cache
from urllib.parse import unquote, urldefrag, urlparse

import pytest
from bs4 import BeautifulSoup

import chapters
import gilib
import gilib_book
import pasted
from tests.site.conftest import ROOT, SITE

HTML = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)
API = sorted((SITE / "book" / "api").glob("*.html"))
EMBEDDED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href"}
COLOURED = re.compile(r'<span class="\w{1,3}">([^<]*)</span>')  # words of code, seven in ten elements
# a role that nothing has read, a docstring that nobody has written
UNREAD = re.compile(r"\{(?:glue|numref|ref|eq|cite|py|term|doc)\b|Alias for field number")
PASTES = re.compile(r"\{glue:text\}`")
CELLS = re.compile(r"^```+\{code-cell\}.*?^```+$", re.M | re.S)
PAGES = {SITE / path.relative_to(ROOT).with_suffix(".html"): path for path in chapters.chapters()}


@dataclass(frozen=True)
class Content:
    """What is checked of a page; the tree itself would fill the memory."""

    links: frozenset[str]
    sources: tuple[str, ...]
    anchors: frozenset[str]
    pasted: tuple[str, ...]
    holes: tuple[str, ...]


@cache
def content(page):
    html = parsed(page)
    anchors = {tag["name"] for tag in html.find_all("a", attrs={"name": True})}
    return Content(
        frozenset(tag["href"] for tag in html.find_all("a", href=True)),
        tuple(tag[key] for name, key in EMBEDDED.items() for tag in html.find_all(name) if tag.get(key)),
        frozenset(anchors | {tag["id"] for tag in html.find_all(id=True)}),
        tuple(tag.get_text() for tag in html.select(".pasted-text")),
        tuple(holes(html)),  # the last, for it takes parts out
    )


def parsed(page):
    return BeautifulSoup(COLOURED.sub(r"\1", page.read_text()), "html.parser")


def holes(html):
    """What a page lacks: numbers pasted empty, roles as they were typed, the results of a chapter."""
    empty = [tag for tag in html.select(".pasted-text") if not tag.text.strip()]
    found = [f"nothing is pasted: {tag.parent}" for tag in empty]
    found += [f"a chapter failed: {tag.get_text()}" for tag in html.select(".chapter-failed")]
    if UNREAD.search(html.get_text()):
        for tag in html.select("pre, code, script, style, .math"):
            tag.extract()
        found += [f"not read: {role}" for role in UNREAD.findall(html.get_text())]
    return found


def problem(page, link):
    """What is wrong with a link of the page, if anything."""
    target, anchor = urldefrag(link)
    if urlparse(link).scheme:
        return None
    path = (page.parent / unquote(target.split("?")[0])).resolve() if target else page
    path = path / "index.html" if path.is_dir() else path
    if not path.is_file():
        return f"{link}: no such file"
    if anchor and path.suffix == ".html" and unquote(anchor) not in content(path).anchors:
        return f"{link}: no such anchor"
    return None


def test_book_is_built(site):
    assert len(HTML) > 3


@pytest.mark.parametrize("page", HTML, ids=lambda path: path.relative_to(SITE).as_posix())
def test_page(page):
    """Numbers in sentences are typeset by `tools/pasted.py`: no hyphen for a minus, no name of a type."""
    found, text = content(page), page.read_text()
    sources = [source for source in found.sources if not source.startswith("data:")]
    problems = [f"{source} is elsewhere" for source in sources if urlparse(source).netloc]
    problems += filter(None, (problem(page, link) for link in sorted({*found.links, *sources})))
    problems += [f"{leak} leaks into the page" for leak in (str(ROOT), "it/s]") if leak in text]
    plain = [text for text in found.pasted if text[:1] == "-" or pasted.typeset(text) != text]
    problems += [f"{text} is not typeset" for text in plain]
    if page in PAGES:  # what is pasted without a key leaves nothing at all
        typed = PASTES.findall(CELLS.sub("", PAGES[page].read_text()))
        problems += ["less is pasted than was typed"] * (len(found.pasted) < len(typed))
    assert [*problems, *found.holes] == []


@pytest.mark.parametrize("page", API, ids=lambda path: path.stem)
def test_a_page_of_the_api(page):
    """Every entry leads back to the book, and formulas of docstrings are set."""
    html = parsed(page).select_one("article")
    assert html is not None
    entries = html.select("section > dl.py")
    assert entries and all(entry.select("p.derived a.reference") for entry in entries)
    formulas = [tag.extract().get_text() for tag in html.select(".math")]
    known = {"posteriors": r"\(\displaystyle \mathrm{Σ} = \mathrm{Ψ} / (ν + O + 1)\)"}
    assert known.get(page.stem) in [None, *formulas]
    signatures = "".join(tag.get_text() for tag in html.select("dt.sig"))
    assert re.findall(r"\(\*args\b|Annotated\[", signatures) == []
    for tag in html.select("pre, code"):
        tag.extract()
    assert re.findall(r":math:|(?<!\w)\$\S", html.get_text()) == []


def test_api_pages_show_every_public_name():
    shown = frozenset.union(*(content(page).anchors for page in API))
    missing = set(gilib_book.public_names(gilib)) - shown
    assert not missing, f"add the rooms of {sorted(missing)} to a page of book/api"


def test_names_in_code_lead_to_the_api():
    page = parsed(SITE / "book" / "chapters" / "global-inducing-points.html")
    links = {tag["href"].rpartition("#")[2] for tag in page.select(".cell_input a.sphinx-codeautolink-a")}
    assert links >= {"gilib.fit", "gilib.Gaussian", "gilib.Network.draw", "experiments.plots.band"}
