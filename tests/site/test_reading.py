"""What a reader does beside reading: turn pages by key, print, mistype an address, look a class up."""

import re

import pytest

from tests.site.visits import visit

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
