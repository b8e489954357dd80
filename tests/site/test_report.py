"""The tables of the reproducibility report in a browser: they sort, and links unfold what they lead to."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.site.visits import visit

PAGE = "book/appendices/reproducibility.html"
TABLE = "ober2021_table2_toy_elbo_variances"
KEYS = """(table, column) => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.key))"""


@pytest.fixture
def report(browser: Browser, address: str) -> Iterator[Page]:
    with visit(browser, address, PAGE, "light") as found:
        yield found.page
        assert not found.problems


def test_a_click_sorts_and_a_second_one_reverses(report: Page) -> None:
    report.locator(f"#{TABLE} summary").click()
    table = report.locator(f"#{TABLE} table")
    titles = table.locator("th").all_inner_texts()
    column, header = titles.index("paper"), table.locator("th", has_text="paper")

    def keys() -> list[float]:
        return table.evaluate(f"(table) => ({KEYS})(table, {column})")

    before = keys()
    for direction, reverse in (("ascending", False), ("descending", True)):
        header.locator("button").click()
        assert keys() == sorted(before, reverse=reverse) != before
        assert header.get_attribute("aria-sort") == direction
    table.locator("th button").first.click()
    assert header.get_attribute("aria-sort") is None


def test_the_sums_stay_below(report: Page) -> None:
    totals = report.locator("table.sortable").first
    totals.locator("th button").first.click()
    totals.locator("th button").first.click()
    assert totals.locator("tr").last.inner_text().startswith("all tables")


def test_links_unfold_what_they_lead_to(report: Page) -> None:
    folded = report.locator(f"details#{TABLE}")
    assert folded.get_attribute("open") is None
    report.locator(f"a[href='#{TABLE}']").click()
    report.wait_for_function(f"document.getElementById('{TABLE}').open")
    folded.locator("td.is-record a").first.click()
    report.wait_for_function("document.getElementById('records').open")
    row = report.locator("tr:target")
    assert row.is_visible() and row.inner_text().startswith("toy.jsonl, lines")
