"""What a reader does beside reading: turn pages by key, print, mistype an address, search, move sliders."""

import json
import re
from io import BytesIO
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from tests.site.conftest import SITE
from tests.site.visits import PHONE, visit

CHAPTER = "book/chapters/calibration.html"


def test_arrow_keys_turn_pages(browser, address):
    with visit(browser, address, CHAPTER, "light") as found:
        following = found.page.locator("a.right-next").evaluate("(link) => link.href")
        found.page.keyboard.press("ArrowRight")
        found.page.wait_for_url(following)
        found.page.keyboard.press("ArrowLeft")
        found.page.wait_for_url(f"**/{CHAPTER}")


def test_on_paper_proofs_and_solutions_are_open_and_source_bars_are_gone(browser, address):
    with visit(browser, address, CHAPTER, "light") as found:
        page = found.page
        solution = page.locator(".solution.toggle .admonition-title ~ section").first
        assert page.locator("details.sd-dropdown[open]").count() == 0 and not solution.is_visible()
        page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.locator("details.sd-dropdown:not([open])").count() == 0
        solution.wait_for(state="visible")
        assert not any(bar.is_visible() for bar in page.locator("details.hide").all())
        page.emulate_media(media="screen")
        page.evaluate("window.dispatchEvent(new Event('afterprint'))")
        assert page.locator("details.sd-dropdown[open]").count() == 0


def test_a_long_name_breaks_after_its_dots_and_a_number_nowhere(browser, address):
    with visit(browser, address, "book/chapters/your-own-data.html", "light") as found:
        name = found.page.locator("p code", has_text="gilib.likelihoods.HeteroscedasticGaussian").first
        assert name.inner_html() == "gilib.<wbr>likelihoods.<wbr>HeteroscedasticGaussian"
        spaces = "(cells) => [...new Set(cells.map((cell) => getComputedStyle(cell).whiteSpace))]"
        assert found.page.locator("td.text-right").evaluate_all(spaces) == ["nowrap"]


def test_a_missing_page_leads_back_from_any_depth(browser, address, site):
    page = browser.new_page()
    page.route("**/gone.html", lambda route: route.fulfill(path=site / "404.html"))
    paths = [("/a-book/", ""), ("/a-book/", "book/"), ("/book/", "book/chapters/"), ("/", "book/")]
    for start, folder in [*paths, ("/", "_modules/gilib/")]:
        page.goto(f"{address}{start}{folder}gone.html")
        links = page.locator("a").evaluate_all("(links) => links.map((link) => new URL(link.href).pathname)")
        assert links == [f"{start}index.html", f"{start}search.html"]
    page.close()


@pytest.mark.parametrize(
    ("path", "title", "label"),
    [
        ("book/appendices/notation.html", "A", "Fig. A.1"),
        ("book/appendices/gradient.html", r"[B-H]", r"\([B-H].1\)"),
    ],
)
def test_appendices_are_lettered(browser, address, path, title, label):
    with visit(browser, address, path, "light") as found:
        assert re.match(rf"{title}\. ", found.page.locator("article h1").inner_text())
        assert re.match(rf"{title}\. ", found.page.locator("nav li.current > a").first.inner_text())
        assert re.search(label, found.page.locator("article").inner_text())


def test_the_reference_shows_what_one_writes_first_and_with_its_arguments(browser, address):
    with visit(browser, address, "book/api/posteriors.html", "light") as found:
        assert found.page.locator("p.rubric.part").all_inner_texts() == ["You write", "What it builds"]
        names = found.page.locator("dl.py.class > dt .sig-name.descname").all_inner_texts()
        assert names.index("Conjugate") < names.index("Posterior") < names.index("ConjugateWeights")
        first = found.page.locator("dl.py.class > dt").first.inner_text()
        assert "initial_variance" in first and "*args" not in first


SOURCES = re.compile(r"\\[a-zA-Z(\[\]]|\$|\{code-cell|Show the|Hide the")
FIRST = 3  # results that are near the top
DATA = "book/chapters/your-own-data.html"


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


WANTED = [(asked, DATA, FIRST) for asked in ("own data", "classification", "save", "conformal", "pretrained")]
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
        from experiments.plots import METHODS  # with torch, which the other tests do without

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


NEAR = 3  # of 255, for a screen's rounding; no two methods of a figure are as close
ENOUGH = 40  # pixels: a line or a mark and not an edge that looks alike


LUMINANCE = np.array([0.213, 0.715, 0.072])
PAGE = np.array([0x14, 0x18, 0x1C]) / 255  # by night


def shown_as(colour, theme):
    """What the style makes of a colour c: by night 1 + c - 2 luminance(c), added to the page."""
    c = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    if theme == "light":
        return 255 * c
    turned = (1 + c - 2 * LUMINANCE @ c).clip(0, 1)
    return 255 * (turned + PAGE - turned * PAGE)


def seen(found, theme):
    """The methods whose colours the first figure of a page has."""
    from experiments.plots import METHODS

    found.theme(theme)
    figure = found.page.locator(".bd-article img:not(.photo)").first
    pixels = np.asarray(Image.open(BytesIO(figure.screenshot())).convert("RGB"), dtype=int)
    off = {name: abs(pixels - shown_as(look.colour, theme)).max(-1) for name, look in METHODS.items()}
    return {name for name, difference in off.items() if (difference <= NEAR).sum() >= ENOUGH}


def test_methods_have_one_hue_in_both_themes(browser, address):
    with visit(browser, address, "book/intro.html", "light", sharpness=2) as found:
        day, night = (seen(found, theme) for theme in ("light", "dark"))
    assert {"fac", "gi", "hmc"} <= day == night
