"""The columns of a printed table in the report: texts, sort keys and links."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.report.comparing import Comparison, Verdict
from experiments.report.measuring import Measured
from experiments.report.texts import (
    IDENTITY,
    as_words,
    command_text,
    errors_text,
    notes,
    number_text,
    ours_text,
    printed_text,
    record_text,
    runs_text,
    scale_text,
)

ORDER = list(Verdict)


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: text of the cell.
        key: sort key; the text if None.
        kind: CSS class of the page, or ""; the page folds the text of a "command".
        link: anchor on the page, or "".
    """

    text: str = ""
    key: float | None = None
    kind: str = ""
    link: str = ""


EMPTY = Cell()


@dataclass(frozen=True)
class Column:
    """A column: its title, and a function that returns its cell for a comparison."""

    title: str
    cell: Callable[[Comparison], Cell]


def columns(group: Sequence[Comparison]) -> list[Column]:
    """Return the columns of a printed table: those that identify its claims, and those with content."""
    varying = [name for name in IDENTITY if len({getattr(each.claim, name) for each in group}) > 1]
    numbers = {note: str(number) for number, note in enumerate(notes(group), 1)}
    shown = [
        *(Column(name, _named(name)) for name in varying),
        Column("paper", _print),
        Column("ours", _measured(lambda each, found: ours_cell(found, each.claim.decimals))),
        Column("verdict", _verdict),
        Column("scale", _measured(lambda each, found: Cell(scale_text(found)))),
        Column("runs", _measured(lambda each, found: runs_cell(found))),
        Column("apart", _deviation),
        Column("errors", _measured(lambda each, found: Cell(errors_text(each)))),
        Column("record", _measured(lambda each, found: record_cell(found))),
        Column("note", lambda each: Cell(numbers.get(each.claim.note, ""))),
        Column("again", _measured(lambda each, found: Cell(command_text(found), kind="command"))),
    ]
    return [column for column in shown if any(column.cell(each).text for each in group)]


def ours_cell(measured: Measured, printed_decimals: int) -> Cell:
    """Return the cell of our number; empty if every run diverged."""
    return Cell(ours_text(measured, printed_decimals), measured.mean) if measured.values else EMPTY


def runs_cell(measured: Measured) -> Cell:
    """Return the cell with the number of runs."""
    return Cell(runs_text(measured), len(measured.sources))


def record_cell(measured: Measured) -> Cell:
    """Return the cell of the first record, with a link to all records."""
    return Cell(record_text(measured), link=anchor(measured))


def anchor(measured: Measured) -> str:
    """Return the anchor of the row that lists the records of a number; short, as a page has thousands."""
    ids = " ".join(source.record["id"] for source in measured.sources)
    return f"r-{hashlib.sha256(ids.encode()).hexdigest()[:8]}"


def _named(name: str) -> Callable[[Comparison], Cell]:
    def cell(comparison: Comparison) -> Cell:
        value = getattr(comparison.claim, name)
        return Cell(as_words(value), float(value) if value.isdigit() else None)

    return cell


def _measured(make: Callable[[Comparison, Measured], Cell]) -> Callable[[Comparison], Cell]:
    """Return a function for cells that are empty unless there is a number of ours."""

    def cell(comparison: Comparison) -> Cell:
        return EMPTY if comparison.measured is None else make(comparison, comparison.measured)

    return cell


def _print(comparison: Comparison) -> Cell:
    claim = comparison.claim
    return Cell(printed_text(claim.value, claim.stderr), claim.number)


def _deviation(comparison: Comparison) -> Cell:
    deviation = comparison.deviation
    return EMPTY if deviation is None else Cell(number_text(deviation, 1, "+"), deviation)


def _verdict(comparison: Comparison) -> Cell:
    verdict = comparison.verdict
    return Cell(verdict, ORDER.index(verdict), kind=verdict.replace(" ", "-"))
