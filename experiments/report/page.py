"""The report as HTML for the book: sortable tables with links to the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from experiments.report.columns import EMPTY, Cell, anchor, columns, ours_cell, record_cell, runs_cell
from experiments.report.comparing import Comparison, by_table, totals
from experiments.report.markup import Html, element, table
from experiments.report.measuring import Measured
from experiments.report.plain import TOTALS, counts, remark_on
from experiments.report.rules import RULES, Rule
from experiments.report.texts import (
    as_words,
    lines_text,
    notes,
    printed_text,
    scale_text,
    subject,
    title,
)
from experiments.report.yardstick import Best, yardstick
from experiments.runner.records import diverged


def totals_table(found: Sequence[Comparison]) -> Html:
    """Return the agreement of our numbers with each table, by length of training, with totals."""
    rows = [
        [Cell(title(group[0].claim), place, "name", group[0].claim.file), *cells]
        for place, group in enumerate(by_table(found))
        for cells in _counts(group)
    ]
    last = [[Cell("all tables"), *cells] for cells in _counts(found)]
    return Html(table(["table", "trained", *TOTALS], rows, last))


def printed_tables(found: Sequence[Comparison], rules: Mapping[str, Rule] = RULES) -> Html:
    """Return every printed table with our numbers, folded under its name."""
    return Html("".join(_printed_table(group, rules) for group in by_table(found)))


def record_table(found: Sequence[Comparison]) -> Html:
    """Return the records behind our numbers, with one row for all records of a number."""
    groups = {anchor(each.measured): each.measured for each in found if each.measured}
    header = ["records", "scale", "settings in common", "ids", "revision", "hardware"]
    body = table(header, map(_records, groups.values()), ids=list(groups))
    return Html(_folded("records", "Records", f"{len(groups)} groups", body))


def yardstick_table(found: Sequence[Comparison]) -> Html:
    """Return the best known result and our best for each data set."""
    header = [
        "data set",
        "best known",
        "our best",
        "our method",
        "scale",
        "runs",
        "record",
        "best known by",
        "in",
    ]
    return Html(table(header, map(_best, yardstick(found))))


def _counts(found: Sequence[Comparison]) -> Iterator[list[Cell]]:
    for length, numbers in counts(found):
        yield [Cell(length), *(Cell(number, float(number)) if number else EMPTY for number in numbers)]


def _printed_table(group: Sequence[Comparison], rules: Mapping[str, Rule]) -> str:
    claim, count, shown = group[0].claim, totals(group), columns(group)
    about = [f"{subject(group)}. File: results/printed/{claim.file}.csv.", remark_on(claim, rules)]
    rows = [[column.cell(each) for column in shown] for each in group]
    remarks = [element("li", escape(note)) for note in notes(group)]
    return _folded(
        claim.file,
        title(claim),
        f"{count.covered} of {count.claims} covered",
        *(element("p", escape(sentence)) for sentence in about if sentence),
        table([column.title for column in shown], rows),
        element("ol", *remarks) if remarks else "",
        data_paper=claim.source,
        **_shared(group, ("dataset", "method")),
    )


def _shared(group: Sequence[Comparison], names: Iterable[str]) -> dict[str, str]:
    """Return attributes for what all rows of a table share, which no column shows, for the page's filters."""
    values = {name: {getattr(each.claim, name) for each in group} for name in names}
    return {f"data_{name}": as_words(*found) for name, found in values.items() if len(found) == 1}


def _folded(name: str, heading: str, detail: str, *content: str, **attributes: str) -> str:
    summary = element("summary", element("b", escape(heading)), " ", element("span", escape(detail)))
    return element("details", summary, *content, id=name, class_="report", **attributes)


def _records(measured: Measured) -> list[Cell]:
    records = [source.record for source in measured.sources]
    return [
        Cell(f"{records[0]['experiment']}.jsonl, {lines_text(measured.sources)}", kind="name"),
        Cell(scale_text(measured)),
        Cell(_common([record["config"] for record in records]), kind="long"),
        Cell(
            ", ".join(record["id"] + (" (diverged)" if diverged(record) else "") for record in records),
            kind="long",
        ),
        *(
            Cell(_origins(record.get("provenance", {}).get(key) for record in records))
            for key in ("revision", "hardware")
        ),
    ]


def _common(configs: Sequence[Mapping[str, Any]]) -> str:
    """List the settings that all share, without those that are off and without the scale."""
    same = {
        key: value
        for key, value in configs[0].items()
        if key != "scale"
        and value not in ("", None)
        and value is not False
        and all(c.get(key) == value for c in configs)
    }
    return ", ".join(f"{as_words(key)} {value}" for key, value in same.items())


def _origins(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def _best(best: Best) -> list[Cell]:
    known = [Cell(best.dataset), Cell(printed_text(best.value, best.stderr), float(best.value))]
    ours = _our_best(best.ours) if best.ours else [Cell("not run"), *[EMPTY] * 4]
    return [*known, *ours, Cell(best.method), Cell(best.source)]


def _our_best(comparison: Comparison) -> list[Cell]:
    claim, measured = comparison.claim, comparison.measured
    assert measured is not None
    return [
        ours_cell(measured, claim.decimals),
        Cell(
            " ".join(as_words(part) for part in (claim.method, claim.model, claim.prior, claim.depth) if part)
        ),
        Cell(scale_text(measured)),
        runs_cell(measured),
        record_cell(measured),
    ]
