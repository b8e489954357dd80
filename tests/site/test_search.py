"""The search in a browser: it needs no network, shows prose, and leads where one wants to go."""

import re
from urllib.parse import quote

import pytest

from tests.site.visits import visit

SOURCES = re.compile(r"\\[a-zA-Z(\[\]]|\$|\{code-cell|Show the|Hide the")
FIRST = 3  # results that are near the top
CHAPTER = "book/chapters/your-own-data.html"


def results(page):
    page.wait_for_function("document.querySelector('.search-summary')?.textContent.includes('finished')")
    return page.locator("#search-results li > a").evaluate_all(
        "(links) => links.map((link) => link.getAttribute('href'))"
    )


@pytest.fixture
def search(browser, address, request):
    with visit(browser, address, f"search.html?q={quote(request.param)}", "light") as found:
        yield found.page
        assert not found.problems


@pytest.mark.parametrize("search", ["precision", "pseudo-outputs", "bound"], indirect=True)
def test_snippets_are_prose(search):
    found = results(search)
    with_formulas = [address for address in found if "/chapters/" in address]
    assert len(with_formulas) >= 5
    search.wait_for_function(
        "(count) => document.querySelectorAll('#search-results p.context').length >= count",
        arg=len([address for address in found if "#" not in address]),
    )
    snippets = search.locator("#search-results p.context").all_inner_texts()
    assert any("…" in snippet for snippet in snippets)  # a formula was left out
    assert [snippet for snippet in snippets if SOURCES.search(snippet)] == []


WANTED = [
    (asked, CHAPTER, FIRST) for asked in ("own data", "classification", "save", "conformal", "pretrained")
]
WANTED += [("custom posterior", "book/appendices/write-your-own-posterior.html", 1)]


@pytest.mark.parametrize(("search", "place", "first"), WANTED, indirect=["search"])
def test_questions_of_a_user_lead_to_the_page_that_is_meant(search, place, first):
    found = results(search)[:first]
    assert any(address.startswith(place) for address in found), found


@pytest.mark.parametrize("search", ["xylophonist"], indirect=True)
def test_nothing_is_found_where_there_is_nothing(search):
    search.wait_for_function(
        "document.querySelector('.search-summary')?.textContent.includes('did not match')"
    )
    assert search.locator("#search-results li").count() == 0
