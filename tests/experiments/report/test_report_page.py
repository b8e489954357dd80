"""What the report shows: text for a terminal, HTML for the book."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from experiments import report
from experiments.__main__ import main
from experiments.report import texts
from experiments.report.columns import anchor, columns
from tests.experiments.report.conftest import RULE, compare, print_table, record, scores

NASTY = 'a|b <script>alert("&")</script>'
RULES = {"ober2021_table1": replace(RULE, remark="mind <this>")}


@pytest.fixture
def found(papers):
    """Two tables: one measured, with markup in its texts, one not run."""
    first = {"value": "-2.50", "stderr": "0.10", "note": NASTY}
    second = {"dataset": "<b>", "method": "local_inducing", "note": "second"}
    third = {"metric": "rmse", "units": "m", "note": NASTY}
    print_table(papers, "ober2021_table1", first, second, third, {"dataset": "wine"})
    print_table(papers, "other", {"source": NASTY, "depth": "2"}, {"source": NASTY, "depth": "10"})
    record(papers, *scores(-2.5, -2.6, -2.7), {"metrics": {}, "diverged_at": 1})
    record(papers, *scores(-4.0, scale="reduced", config={"dataset": "wine"}))
    return report.comparisons(RULES)


def parse(html):
    """The elements of a page: an error if they are not well formed."""
    return ElementTree.fromstring(f"<div>{html._repr_html_()}</div>")


def rows(element):
    return [["".join(cell.itertext()) for cell in row] for row in element.iter("tr")]


def test_columns_show_what_tells_claims_apart_and_what_is_known(found):
    measured, nothing = report.by_table(found)
    cells = {column.title: column.cell(measured[0]) for column in columns(measured)}
    shown = ["paper", "ours", "verdict", "scale", "runs", "apart", "errors", "record", "note", "again"]
    assert [*cells] == ["dataset", "method", "metric", *shown]
    assert [column.title for column in columns(nothing)] == ["depth", "paper", "verdict"]
    *texts, again = [cell.text for cell in cells.values()]
    assert texts[:5] == ["yacht", "gi", "test log likelihood", "−2.50 ± 0.10", "−2.600 ± 0.058"]
    assert texts[5:10] == ["agrees", "paper", "4, 1 diverged", "−0.9", "both"]
    assert texts[10:] == ["trial.jsonl:1 id1 +3", "1"]
    assert again == "python -m experiments run trial --scale paper --only dataset=yacht method=gi --again"
    assert cells["paper"].key == -2.5 and cells["ours"].key == pytest.approx(-2.6)
    assert cells["record"].link == anchor(measured[0].measured)


def test_totals_table(found):
    """Short trainings are counted apart from those that are as long as the paper's, in the sums as well."""
    header, *body = rows(parse(report.totals_table(found)))
    assert header == ["table", "trained", "numbers", "agree", "better", "worse, differ", "diverged"]
    first, full = "A & B (2000), Table 1", "as long"
    assert body == [
        [first, full, "2", "1", "1", "0", "0"],
        [first, "shorter", "1", "0", "0", "1", "0"],
        [first, "not run", "1", *[""] * 4],
        [f"{NASTY}, Table 1", "not run", "2", *[""] * 4],
        ["all tables", full, "2", "1", "1", "0", "0"],
        ["all tables", "shorter", "1", "0", "0", "1", "0"],
        ["all tables", "not run", "3", *[""] * 4],
    ]


def test_printed_tables_hold_every_claim_and_escape_text(found):
    page = report.printed_tables(found, RULES)
    tree = parse(page)
    assert len(tree.findall(".//tbody/tr")) == len(found)
    assert "<script" not in page.content and "<b>x" not in page.content
    text = "".join(tree.itertext())
    assert NASTY in text and "mind <this>" in text and "test log likelihood (nats), RMSE (m)" in text
    assert len(tree.findall(".//ol/li")) == 2, "each note once"
    assert all("summary" == child[0].tag for child in tree)


def test_links_lead_to_something_on_the_page(found):
    parts = [report.totals_table(found), report.printed_tables(found), report.record_table(found)]
    trees = [parse(part) for part in parts]
    names = [element.get("id") for tree in trees for element in tree.iter() if element.get("id")]
    links = [element.get("href") for tree in trees for element in tree.iter("a")]
    assert len(set(names)) == len(names)
    assert len(links) == 3 + 1 + 3 and {link.removeprefix("#") for link in links} <= set(names)


def test_numbers_measured_together_share_their_records(found):
    (header, first, second) = rows(parse(report.record_table(found)))
    assert header == ["records", "scale", "settings in common", "ids", "revision", "hardware"]
    common, ids = "dataset yacht, method gi", "id1, id2, id3, id4 (diverged)"
    assert first == ["trial.jsonl, lines 1–4", "paper", common, ids, "abc", "a <CPU>"]
    assert second[:2] == ["trial.jsonl, line 5", "reduced"] and "split 4" in second[2]


def test_numbers_are_sorted_as_numbers(found):
    """By what they show, in columns that the script of the page knows for numbers; else by a key."""
    table = parse(report.printed_tables(found)).find(".//details[2]//table")
    assert table.find("thead/tr/th").get("class") == "is-number"
    first, second = (row.find("td") for row in table.findall("tbody/tr"))
    assert (first.text, second.text) == ("2", "10") and first.get("data-key") is None


def test_yardstick_table(found, papers):
    (papers / "printed" / "best_known_uci_test_ll.csv").write_text(
        "dataset,value,stderr,method,splits,source\nyacht,0.17,0.11,D & GP,20,A\n"
    )
    assert rows(parse(report.yardstick_table(found)))[1][:3] == ["yacht", "0.17 ± 0.11", "not run"]
    print_table(papers, "ober2021_table8_uci_dgp_test_ll", {"model": "dgp", "depth": "3"})
    found = report.comparisons({"ober2021_table8_uci_dgp_test_ll": RULE})
    ours = ["−2.600 ± 0.058", "gi DGP 3", "paper", "4, 1 diverged", "trial.jsonl:1 id1 +3"]
    assert rows(parse(report.yardstick_table(found)))[1][2:] == [*ours, "D & GP", "A"]


def test_text_has_totals_first_then_every_row(found):
    lines = report.text(RULES).split("\n")
    assert lines[0] == "# Reproducibility report"
    assert lines[2].startswith(
        "3 of 6 printed numbers (50%) are covered. Trained as long as in the papers, 1 of"
    )
    assert "Trained shorter, 0 of 1 agree" in lines[2]
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) == 2 * 2 + 2 + 7 + len(found), "headers with their lines, totals by length, the rows"
    assert [line.startswith("| all ") for line in tables[2:9]] == [False] * 4 + [True] * 3
    assert lines.index("mind <this>") > lines.index("## A & B (2000), Table 1")
    assert sum(r"a\|b <script>" in line for line in tables) == 1 and f"1. {NASTY}" in lines
    for start in (0, 9, 15):  # columns stand below each other
        assert len({len(line) for line in tables[start : start + 3]}) == 1


def test_the_command_prints_and_writes_the_report(found, papers, capsys):
    """With the rules of the package: these made-up tables have none."""
    assert main(["report"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# Reproducibility report\n\n0 of 6 printed numbers (0%) are covered")
    assert main(["report", "--out", str(papers / "report.md")]) == 0
    assert (papers / "report.md").read_text(encoding="utf-8").strip() == printed.strip()


@pytest.mark.parametrize(
    ("values", "printed", "expected"),
    [
        ([1.0, 3.0], 2, "2.0 ± 1.0"),
        ([-220.0, -227.8], 3, "−223.9 ± 3.9"),
        ([0.00029, 0.00031], 2, "0.000300 ± 0.000010"),
        ([-365.0, -397.0], 3, "−381 ± 16"),
        ([1e-12, 3e-12], 2, "0.0000000 ± 0.0000000"),
        ([2.34567], 2, "2.346"),
        ([2.0, 2.0], 0, "2.0"),
    ],
)
def test_our_number_has_two_digits_of_its_error(values, printed, expected, papers):
    assert texts.ours_text(compare(papers, *scores(*values)).measured, printed) == expected


@pytest.mark.parametrize(
    ("row", "values", "spread", "expected"),
    [
        ({"stderr": "0.1"}, [1.0, 2.0], False, "both"),
        ({}, [1.0, 2.0], False, "ours"),
        ({"stderr": "0.1"}, [1.0], False, "paper"),
        ({}, [1.0], True, "neither"),
        ({}, [1.0, 2.0], True, "ours, spread"),
    ],
)
def test_it_is_said_whose_errors_there_are(row, values, spread, expected, papers):
    rule = replace(RULE, print_is_one_draw=spread)
    assert texts.errors_text(compare(papers, *scores(*values), rule=rule, **row)) == expected


def test_a_scale_says_that_repetitions_are_missing(papers):
    found = compare(papers, *scores(1.0), rule=replace(RULE, repetitions=lambda claim: 20))
    assert texts.scale_text(found.measured) == "paper, in part"
    assert texts.runs_text(found.measured) == "1 of 20"


@pytest.mark.parametrize(
    ("covered", "total", "expected"),
    [(0, 900, "0%"), (1, 900, "<1%"), (899, 900, "99%"), (9, 9, "100%"), (0, 0, "0%")],
)
def test_nothing_is_called_complete_before_it_is(covered, total, expected):
    count = replace(report.totals([]), claims=total, not_run=total - covered)
    assert texts.share_text(count) == expected
