"""Every page in a real browser: light and dark, at three widths, no network but the book's own server."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.site.conftest import pages
from tests.site.visits import DESKTOP, DRAWN, PHONE, TABLET, visit

LIMIT = 2_000_000  # bytes of a page and all it loads, pictures apart
FORBIDDEN = {"serious", "critical"}
COLOURS = ["color-contrast", "link-in-text-block"]
ALL: dict[str, list[list[str]]] = {"exclude": []}
FRAME = {"exclude": [[".bd-article"]]}  # nothing within appears or goes as a window widens

GRAVE = f"axe._audit.rules = axe._audit.rules.filter((rule) => {[*FORBIDDEN]}.includes(rule.impact))"
AXE = f"{AXE_SCRIPT}; {GRAVE}; null"
UNFOLD = "() => { for (const folded of document.querySelectorAll('details')) folded.open = true; }"
seen: dict[str, int] = {}  # by `thin`, on the pages before


def axe(found):
    """What axe-core finds everywhere when narrow, around the text when wide, and of colours by night and day.

    It changes the page, and leaves out the rules that are never serious.
    """
    all_else = {"rules": dict.fromkeys(COLOURS, {"enabled": False})}
    found.script("shorten")
    found.page.evaluate(AXE)
    problems: list[str] = []
    for width, where in ((PHONE, ALL), (DESKTOP, FRAME)):
        found.resize(width)
        problems += [f"at {width}: {problem}" for problem in violations(found, where, all_else)]
    seen.update(found.script("thin", seen))
    for theme in ("dark", "light"):
        found.theme(theme)
        problems += [f"{theme}: {problem}" for problem in violations(found, ALL, {"runOnly": COLOURS})]
    return problems


def violations(found, where, options):
    settings = options | {"resultTypes": ["violations"], "preload": False}
    rules = found.page.evaluate("(given) => axe.run(...given)", [where, settings])["violations"]
    return [
        f"axe, {rule['id']}: {rule['help']}: {[node['html'][:120] for node in rule['nodes'][:3]]}"
        for rule in rules
        if rule["impact"] in FORBIDDEN
    ]


def shape(found, *widths):
    problems = []
    for width in widths:
        found.resize(width)
        problems += [f"at {width}: {problem}" for problem in found.check("overflow") + found.check("clipped")]
    return problems


@pytest.mark.parametrize("path", pages() or ["index.html"])
def test_page(browser, address, path):
    """A theme has colours of its own and hardly a width, and most is on the page when all is unfolded."""
    with visit(browser, address, path, "light") as found:
        problems = found.problems
        for name in ("mathematics", "images", "drawings", "wide_formulas", "colours"):
            problems += found.check(name)
        problems += shape(found, DESKTOP, TABLET, PHONE)
        found.page.evaluate(UNFOLD)
        found.page.evaluate(DRAWN)
        problems += [f"open, {problem}" for problem in shape(found, PHONE)]
        found.theme("dark")
        problems += [f"dark: {problem}" for problem in found.check("colours") + shape(found, PHONE)]
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


def test_the_front_door_leads_to_the_book_whose_button_changes_the_theme(browser, address):
    with visit(browser, address, "index.html", "light") as found:
        found.page.wait_for_url("**/book/intro.html")
        assert found.page.locator("h1").first.inner_text().startswith("A layer draws a function")
    with visit(browser, address, "book/intro.html", "light") as found:
        found.page.locator("button.theme-switch-button").locator("visible=true").first.click()
        found.page.wait_for_function("document.documentElement.dataset.mode !== 'auto'")
