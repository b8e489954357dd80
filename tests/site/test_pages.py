"""Every page in a real browser: light and dark, wide and narrow, no network but the book's own server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.site.conftest import pages

CHECKS = Path(__file__).with_name("checks.js").read_text()
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
READY = """async () => {
    await (window.MathJax?.startup?.promise ?? Promise.resolve());
    await document.fonts.ready;
    return document.readyState === "complete";
}"""


@dataclass
class Visit:
    """A page in the browser and what went wrong while it loaded."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def check(self, name: str) -> list[str]:
        return [f"{name}: {problem}" for problem in self.page.evaluate(f"() => {CHECKS}.{name}()")]


@contextmanager
def visit(browser: Browser, address: str, path: str, theme: str) -> Iterator[Visit]:
    """Open a page and wait until mathematics and fonts stand."""
    context = browser.new_context(viewport=WIDE, color_scheme=theme)  # type: ignore[arg-type]
    found = Visit(context.new_page())
    problems, page = found.problems, found.page
    page.on("request", lambda r: r.url.startswith((address, "data:")) or problems.append(f"asks for {r.url}"))
    page.on("response", lambda r: r.status < 400 or problems.append(f"{r.status} for {r.url}"))
    page.on("requestfailed", lambda r: problems.append(f"{r.failure} for {r.url}"))
    page.on("console", lambda m: m.type != "error" or problems.append(f"console: {m.text}"))
    page.on("pageerror", lambda error: problems.append(f"script: {error}"))
    page.goto(f"{address}/{path}", wait_until="load")
    page.wait_for_function(READY)
    yield found
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", pages() or ["index.html"])
def test_page(browser: Browser, address: str, path: str, theme: str) -> None:
    with visit(browser, address, path, theme) as found:
        assert found.page.locator("html").get_attribute("data-theme") == theme
        problems = found.problems
        for name in ("mathematics", "images", "drawings", "contrast", "overflow"):
            problems += found.check(name)
        found.page.set_viewport_size(NARROW)
        problems += found.check("overflow")
        assert found.page.evaluate("""() => document.fonts.check('16px "Source Serif 4"')""")
        assert not problems, "\n".join([f"{path} ({theme})", *problems])


def test_front_door_leads_to_the_book(browser: Browser, address: str) -> None:
    with visit(browser, address, "index.html", "light") as found:
        found.page.wait_for_url("**/book/intro.html")
        assert found.page.locator("h1").first.inner_text().startswith("A layer draws a function")


def test_search_works_without_a_network(browser: Browser, address: str) -> None:
    with visit(browser, address, "search.html?q=inducing", "light") as found:
        found.page.locator("#search-results li a").first.wait_for()
        assert found.problems == []


def test_theme_button_changes_the_theme(browser: Browser, address: str) -> None:
    with visit(browser, address, "book/intro.html", "light") as found:
        found.page.locator("button.theme-switch-button").locator("visible=true").first.click()
        found.page.wait_for_function("document.documentElement.dataset.mode !== 'auto'")
