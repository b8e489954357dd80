"""Every page in a real browser: light and dark, at three widths, no network but the book's own server."""

from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser

from tests.site.conftest import pages
from tests.site.visits import DESKTOP, PHONE, TABLET, Visit, visit

LIMIT = 2_000_000  # bytes of a page and all it loads, pictures apart
FORBIDDEN = {"serious", "critical"}
CONTRAST = "color-contrast"
THEMES = ("light", "dark")
# A theme has colours of its own and hardly a width: by night where there is least room and most on the page.
SHAPES = {
    "light": (("closed", (TABLET, PHONE, DESKTOP)), ("open", (DESKTOP, PHONE))),
    "dark": (("open", (PHONE,)),),
}
ALL: dict[str, list[list[str]]] = {"exclude": []}
FRAME = {"exclude": [[".bd-article"]]}  # nothing within appears or goes as a window widens

# What repeats takes axe minutes and tells it nothing new: formulas, rows of a table, coloured words of code.
SHORTEN = """() => {
    for (const formula of document.querySelectorAll("mjx-container")) formula.replaceWith("x");
    for (const row of document.querySelectorAll("tbody tr:nth-child(n + 12)")) row.remove();
    const seen = {};
    for (const word of document.querySelectorAll(":is(pre, code, .sig) span[class]")) {
        const place = `${word.className} in ${word.parentElement.className}`;
        seen[place] = (seen[place] ?? 0) + 1;
        if (seen[place] > 3) word.replaceWith(...word.childNodes);
    }
}"""
# Contrast depends on tags and classes: a block all of whose elements stood twice in the same places goes.
THIN = """() => {
    const name = (element) => element ? `${element.tagName}.${element.className}` : "";
    const place = (one) => [one, one.parentElement, one.parentElement?.parentElement].map(name).join();
    const seen = {};
    const blocks = ":is(p, li, dl, dd, dt, td, pre)";
    for (const block of document.querySelectorAll(`main ${blocks}:not(:has(${blocks}))`)) {
        const places = [block, ...block.querySelectorAll("*")].map(place);
        if (places.every((one) => (seen[one] ?? 0) >= 2)) block.remove();
        else for (const one of places) seen[one] = (seen[one] ?? 0) + 1;
    }
}"""
UNFOLD = "() => { for (const folded of document.querySelectorAll('details')) folded.open = %s; }"


def axe(found: Visit) -> list[str]:
    """What axe-core finds: contrast by day and night, all else when narrow, and around the text when wide.

    It changes the page.
    """
    all_else = {"rules": {CONTRAST: {"enabled": False}}}
    found.page.evaluate(SHORTEN)
    found.page.evaluate(AXE_SCRIPT)
    problems: list[str] = []
    for width, where in ((PHONE, ALL), (DESKTOP, FRAME)):
        found.resize(width)
        problems += [f"at {width}: {problem}" for problem in violations(found, where, all_else)]
    found.page.evaluate(THIN)
    for theme in THEMES:
        found.theme(theme)
        problems += [f"{theme}: {problem}" for problem in violations(found, ALL, {"runOnly": [CONTRAST]})]
    return problems


def violations(found: Visit, where: dict[str, Any], options: dict[str, Any]) -> list[str]:
    """Serious and critical ones."""
    settings = options | {"resultTypes": ["violations"], "preload": False}
    rules = found.page.evaluate("(given) => axe.run(...given)", [where, settings])["violations"]
    return [
        f"axe, {rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in rules
        if rule["impact"] in FORBIDDEN
    ]


def shape(found: Visit, theme: str) -> list[str]:
    """What overflows or is cut off at any width, with what is folded closed and open."""
    problems = []
    for folded, widths in SHAPES[theme]:
        found.page.evaluate(UNFOLD % str(folded == "open").lower())
        for width in widths:
            found.resize(width)
            problems += [
                f"{folded}, at {width}: {problem}"
                for problem in found.check("overflow") + found.check("clipped")
            ]
    return problems


@pytest.mark.parametrize("path", pages() or ["index.html"])
def test_page(browser: Browser, address: str, path: str) -> None:
    with visit(browser, address, path, "light") as found:
        problems = found.problems
        for name in ("mathematics", "images", "drawings", "wide_formulas"):
            problems += found.check(name)
        for theme in THEMES:
            found.theme(theme)
            problems += [f"{theme}: {problem}" for problem in found.check("colours") + shape(found, theme)]
        assert found.page.evaluate("""() => document.fonts.check('16px "Source Serif 4"')""")
        weight = sum(found.page.evaluate("() => " + WEIGHTS).values())
        if weight > LIMIT:
            problems.append(f"weighs {weight} bytes without its pictures")
        problems += axe(found)
        assert not problems, "\n".join([path, *problems])


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
