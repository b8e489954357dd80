"""The tables of the reproducibility report in a browser: they sort, and links unfold what they lead to."""

import pytest

from tests.site.visits import visit

PAGE = "book/appendices/reproducibility.html"
TABLE = "ober2021_table2_toy_elbo_variances"
KEYS = """(table, column) => [...table.tBodies[0].rows].map((row) => row.cells[column]).map(
    (cell) => Number(cell.dataset.key ?? cell.textContent.replace("−", "-").split(" ")[0]))"""


FOLDS = "() => [...document.querySelectorAll('details')].map((fold) => fold.open)"
FOLD = "(open) => document.querySelectorAll('details').forEach((fold, k) => { fold.open = open[k]; })"


@pytest.fixture(scope="module")
def loaded(browser, address):
    """The longest page of the book, loaded once."""
    with visit(browser, address, PAGE, "light") as found:
        yield found


@pytest.fixture
def report(loaded):
    """The page, which is left unfiltered and with its folds as they were."""
    page = loaded.page
    folds = page.evaluate(FOLDS)
    yield page
    page.locator(".report-filter button").click()
    page.evaluate(FOLD, folds)
    page.evaluate("history.replaceState(null, '', location.pathname)")
    assert not loaded.problems


def test_a_click_sorts_and_a_second_one_reverses(report):
    report.locator(f"#{TABLE} > summary").click()
    table = report.locator(f"#{TABLE} table")
    titles = table.locator("th").all_inner_texts()
    column, header = titles.index("paper"), table.locator("th", has_text="paper")

    def keys():
        return table.evaluate(f"(table) => ({KEYS})(table, {column})")

    before = keys()
    for direction, reverse in (("ascending", False), ("descending", True)):
        header.locator("button").click()
        assert keys() == sorted(before, reverse=reverse) != before
        assert header.get_attribute("aria-sort") == direction
    table.locator("th button").first.click()
    assert header.get_attribute("aria-sort") is None


def test_a_row_unfolds_its_command(report):
    report.locator(f"#{TABLE} > summary").click()
    cell = report.locator(f"#{TABLE} td.is-command").first
    assert not cell.locator("code").is_visible()
    cell.locator("summary").click()
    assert cell.locator("code").is_visible()
    command = cell.locator("code").inner_text()
    assert command.startswith("python -m experiments run toy --scale paper --only ")


def test_the_sums_stay_below(report):
    totals = report.locator("table.sortable").first
    totals.locator("th button").first.click()
    totals.locator("th button").first.click()
    assert totals.locator("tr").last.inner_text().startswith("all tables")


def test_links_unfold_what_they_lead_to(report):
    folded = report.locator(f"details#{TABLE}")
    assert folded.get_attribute("open") is None
    report.locator(f"a[href='#{TABLE}']").click()
    report.wait_for_function(f"document.getElementById('{TABLE}').open")
    folded.locator("td a[href^='#r-']").first.click()
    report.wait_for_function("document.getElementById('records').open")
    row = report.locator("tr:target")
    assert row.is_visible() and row.inner_text().startswith("toy.jsonl, lines")


SHOWN = """() => document.querySelectorAll(
    "details.report[data-paper]:not([hidden]) tbody tr:not([hidden])").length"""


def choose(report, **filters):
    for name, value in filters.items():
        report.locator(f".report-filter select[name={name}]").select_option(value)


def counted(report):
    shown, _, total, _ = report.locator(".report-filter output").inner_text().split()
    return [int(shown), int(total)]


def test_filters_choose_rows_and_say_how_many(report):
    every, total = counted(report)
    assert every == total == report.evaluate(SHOWN) > 900
    verdicts = report.locator(".report-filter select[name=verdict] option").all_inner_texts()
    numbers = []
    for verdict in verdicts[1:]:
        choose(report, verdict=verdict)
        numbers.append(counted(report)[0])
        assert numbers[-1] == report.evaluate(SHOWN) > 0
    assert sum(numbers) == total
    choose(report, dataset="yacht")
    assert 0 < counted(report)[0] < numbers[-1]
    report.locator(".report-filter button").click()
    report.wait_for_function("document.querySelector('.report-filter output').textContent.startsWith('9')")
    assert counted(report)[0] == total


def test_few_rows_are_unfolded_and_all_of_them_fit(report):
    choose(report, scale="paper", verdict="worse", dataset="toy 1d")
    rows = report.locator("details.report[data-paper] tbody tr:visible")
    assert 0 < rows.count() == counted(report)[0]
    assert {row.inner_text().count("worse") for row in rows.all()} == {1}


def test_filters_stand_in_the_address(report):
    choose(report, dataset="yacht", verdict="worse")
    chosen = counted(report)
    assert "dataset=yacht&verdict=worse" in report.url
    report.goto(report.url)
    assert counted(report) == chosen
    report.locator(".report-filter button").click()
    report.wait_for_function("!location.search")


def test_filters_work_by_keyboard(report):
    report.locator(".report-filter select[name=paper]").focus()
    report.keyboard.press("ArrowDown")
    shown, total = counted(report)
    assert 0 < shown < total
    for _ in range(5):
        report.keyboard.press("Tab")
    assert report.evaluate("document.activeElement.type") == "reset"
    report.keyboard.press("Enter")
    report.wait_for_function(
        f"document.querySelector('.report-filter output').textContent.startsWith('{total}')"
    )


def test_a_link_to_what_is_filtered_out_shows_it(report):
    papers = report.locator(".report-filter select[name=paper] option").all_inner_texts()
    other = next(name for name in papers if name.startswith("Lindinger"))
    choose(report, paper=other)
    folded = report.locator(f"details#{TABLE}")
    assert folded.is_hidden()
    report.locator(f"a[href='#{TABLE}']").click()
    folded.wait_for(state="visible")
