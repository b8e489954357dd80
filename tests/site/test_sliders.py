"""Figures with a slider in a browser: keys move it, the figure follows, and a method keeps its colour."""

import json
import re

import pytest

from experiments.plots import METHODS
from tests.site.conftest import SITE
from tests.site.visits import PHONE, visit

FIGURES = {"inducing-points": "global-inducing-points", "prior-scale": "priors"}
DRAWN = """(name) => Object.fromEntries([...document.querySelectorAll(`#${name} [data-path]`)]
    .map((path) => [path.dataset.path, path.getAttribute("d")]))"""


def figure_of(name):
    text = (SITE / "book" / "chapters" / f"{FIGURES[name]}.html").read_text()
    return text[text.index(f'id="{name}"') :].partition("</figure>")[0]


def positions(page, name):
    return json.loads(page.locator(f"#{name} script[type='application/json']").inner_text())


@pytest.mark.parametrize("name", FIGURES)
def test_keys_move_the_slider_and_the_figure_follows(browser, address, name):
    with visit(browser, address, f"book/chapters/{FIGURES[name]}.html", "dark") as found:
        page, slider = found.page, found.page.locator(f"#{name} input")
        frames = positions(page, name)
        slider.focus()
        page.keyboard.press("Home")
        for k, frame in enumerate(frames):
            assert slider.input_value() == str(k)
            assert slider.get_attribute("aria-valuetext") == frame["label"]
            assert page.locator(f"#{name} output").inner_text() == frame["text"]
            assert page.evaluate(DRAWN, name) == frame["paths"]
            page.keyboard.press("ArrowRight")
        assert len({json.dumps(frame["paths"]) for frame in frames}) == len(frames) > 4
        for theme in ("dark", "light"):
            found.theme(theme)
            line = page.locator(f"#{name} path[data-path=mean]")
            assert line.get_attribute("stroke") == METHODS["gi"].colour
        found.resize(PHONE)
        assert page.locator(f"#{name} svg").first.bounding_box()["width"] > 250
        assert not found.problems + found.check("overflow")


@pytest.mark.parametrize("name", FIGURES)
def test_without_scripts_a_figure_stands_and_no_slider(browser, address, name):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/book/chapters/{FIGURES[name]}.html")
    assert page.locator(f"#{name} path[data-path=mean]").is_visible()
    assert page.locator(f"#{name} output").inner_text()
    assert not page.locator(f"#{name} input").is_visible()
    context.close()


def test_the_figures_are_numbered_and_small():
    assert sum(len(figure_of(name)) for name in FIGURES) < 300_000
    assert all(re.search(r'class="caption-number">Fig\. [\d.]+', figure_of(name)) for name in FIGURES)
