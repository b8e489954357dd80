"""Every page in a real browser: light and dark, at three widths, no network but the book's own server."""

from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser

from tests.site.conftest import pages
from tests.site.visits import DESKTOP, PHONE, TABLET, Visit, visit

LIMIT = 2_000_000  # bytes of a page and all it loads, pictures apart
ONE_LONG_PAGE = {"book/api.html"}  # of which the text alone weighs more
FORBIDDEN = {"serious", "critical"}


# What repeats takes axe minutes and tells it nothing new: formulas, rows of a table, coloured words of code.
SHORTEN = """() => {
    for (const formula of document.querySelectorAll("mjx-container")) formula.replaceWith("x");
    for (const row of document.querySelectorAll("tbody tr:nth-child(n + 12)")) row.remove();
    const seen = {};
    for (const word of document.querySelectorAll("pre span[class]")) {
        seen[word.className] = (seen[word.className] ?? 0) + 1;
        if (seen[word.className] > 3) word.replaceWith(...word.childNodes);
    }
}"""
UNFOLD = "() => { for (const folded of document.querySelectorAll('details')) folded.open = true; }"


def axe(found: Visit, theme: str) -> list[str]:
    """What axe-core finds: every rule by day, contrast by night; last, for it changes the page."""
    found.page.evaluate(SHORTEN)
    found.page.evaluate(AXE_SCRIPT)
    options: dict[str, Any] = {"resultTypes": ["violations"], "preload": False}
    if theme == "dark":
        options["runOnly"] = ["color-contrast"]
    violations = found.page.evaluate("(options) => axe.run(options)", options)["violations"]
    return [
        f"axe, {rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in violations
        if rule["impact"] in FORBIDDEN
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", pages() or ["index.html"])
def test_page(browser: Browser, address: str, path: str, theme: str) -> None:
    with visit(browser, address, path, theme) as found:
        assert found.page.locator("html").get_attribute("data-theme") == theme
        problems = found.problems
        for name in ("mathematics", "images", "drawings", "colours", "wide_formulas"):
            problems += found.check(name)
        for width in (TABLET, PHONE, DESKTOP):
            found.resize(width)
            problems += [f"at {width}: {p}" for p in found.check("overflow") + found.check("clipped")]
        found.page.evaluate(UNFOLD)
        for width in (DESKTOP, PHONE):
            found.resize(width)
            problems += [
                f"unfolded, at {width}: {p}" for p in found.check("overflow") + found.check("clipped")
            ]
        assert found.page.evaluate("""() => document.fonts.check('16px "Source Serif 4"')""")
        weight = sum(found.page.evaluate("() => " + WEIGHTS).values())
        if weight > LIMIT and path not in ONE_LONG_PAGE:
            problems.append(f"weighs {weight} bytes without its pictures")
        problems += axe(found, theme)
        assert not problems, "\n".join([f"{path} ({theme})", *problems])


WEIGHTS = """Object.fromEntries(
    [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
        .filter((entry) => !/[.](png|jpe?g|gif|svg|webp)([?]|$)/.test(entry.name))
        .map((entry) => [entry.name, entry.decodedBodySize]))"""


def test_front_door_leads_to_the_book(browser: Browser, address: str) -> None:
    with visit(browser, address, "index.html", "light") as found:
        found.page.wait_for_url("**/book/intro.html")
        assert found.page.locator("h1").first.inner_text().startswith("A layer draws a function")


def test_theme_button_changes_the_theme(browser: Browser, address: str) -> None:
    with visit(browser, address, "book/intro.html", "light") as found:
        found.page.locator("button.theme-switch-button").locator("visible=true").first.click()
        found.page.wait_for_function("document.documentElement.dataset.mode !== 'auto'")
