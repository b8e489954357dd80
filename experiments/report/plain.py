"""The report as plain text, which is also Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from experiments.report.claims import Claim
from experiments.report.columns import columns
from experiments.report.comparing import Comparison, Length, by_length, by_table, comparisons, totals
from experiments.report.rules import RULES, Rule
from experiments.report.texts import headline, notes, subject, title

TOTALS = {
    "numbers": "claims",
    "agree": "agrees",
    "better": "better",
    "worse, differ": "disagree",
    "diverged": "diverged",
}


def text(rules: Mapping[str, Rule] = RULES) -> str:
    """Return the report: totals, then every printed number.

    Args:
        rules: rules that select the records for each table.

    Raises:
        RecordError: if there are no printed tables, or a results file is damaged.
    """
    found = comparisons(rules)
    parts = ["# Reproducibility report", headline(found), "\n".join(_totals(found))]
    for group in by_table(found):
        parts += _table(group, rules)
    return "\n\n".join(parts) + "\n"


def counts(found: Sequence[Comparison]) -> Iterator[tuple[Length, list[str]]]:
    """Yield the totals for each length of training that occurs, as cells in the order of `TOTALS`."""
    for length, part in by_length(found).items():
        if part:
            count = totals(part)
            numbers = [str(getattr(count, name)) for name in TOTALS.values()]
            yield length, numbers if length != Length.NONE else [numbers[0], *[""] * (len(numbers) - 1)]


def remark_on(claim: Claim, rules: Mapping[str, Rule]) -> str:
    """Return the remark that a reader needs to judge the comparisons of a table, or ""."""
    return rules[claim.file].remark if claim.file in rules else ""


def _totals(found: Sequence[Comparison]) -> Iterator[str]:
    groups = [*((title(group[0].claim), group) for group in by_table(found)), ("all", found)]
    rows = [[name, length, *numbers] for name, group in groups for length, numbers in counts(group)]
    return padded([["table", "trained", *TOTALS], *rows])


def _table(group: Sequence[Comparison], rules: Mapping[str, Rule]) -> Iterator[str]:
    shown = columns(group)
    rows = [[column.cell(each).text for column in shown] for each in group]
    yield f"## {title(group[0].claim)}"
    yield subject(group) + "."
    if remark := remark_on(group[0].claim, rules):
        yield remark
    yield "\n".join(padded([[column.title for column in shown], *rows]))
    if remarks := notes(group):
        yield "\n".join(f"{number}. {note}" for number, note in enumerate(remarks, 1))


def padded(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    r"""Yield the lines of a Markdown table with aligned columns; the first row is the header.

    >>> print(*padded([["a", "bc"], ["def", "g"]]), sep="\n")
    | a   | bc |
    | --- | -- |
    | def | g  |
    """
    clean = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    header, *body = clean
    for row in [header, ["-" * width for width in widths], *body]:
        yield f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |"
