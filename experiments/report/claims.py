"""Claims: the numbers that papers print, with their context."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from experiments.printed import PRINTED, QUOTED, printed
from experiments.runner.records import RecordError

SOURCES = ("ober2021", "repro", "lindinger2020")  # the order of the report; other sources follow


@dataclass(frozen=True)
class Claim:
    """A printed number with its context, as printed; fields that the paper does not state are "".

    Attributes:
        file: table, a file of `results/printed/` without the ending.
        row: line in the file, 1 for the first below the header.
        source: authors and year.
        table: name of the table in the source.
        dataset: name of the data set.
        model: "bnn", "gp" or "dgp".
        architecture: architecture of the network.
        prior: name of the prior.
        method: method that was measured.
        baseline: method that it was compared with, if the number is a comparison.
        depth: number of layers, as the source counts them.
        metric: what the number measures.
        value: printed digits.
        stderr: printed standard error.
        units: units of the number.
        note: remark of the transcription.
    """

    file: str
    row: int
    source: str
    table: str
    dataset: str
    model: str
    architecture: str
    prior: str
    method: str
    baseline: str
    depth: str
    metric: str
    value: str
    stderr: str
    units: str
    note: str

    @property
    def number(self) -> float:
        """The printed value as a number."""
        return float(self.value)

    @property
    def error(self) -> float | None:
        """The printed standard error, or None."""
        return float(self.stderr) if self.stderr else None

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * 10.0**-self.decimals

    @property
    def decimals(self) -> int:
        """Number of printed digits after the point."""
        return len(self.value.partition(".")[2])


def claims() -> list[Claim]:
    """Return all printed numbers: tables in the order of the report, rows in the order of the file.

    Raises:
        RecordError: if there are no printed tables, or one has a row without a number or lacks a column.
    """
    files = sorted({path.stem for path in PRINTED.glob("*.csv")} - set(QUOTED), key=_place)
    if not files:
        raise RecordError(f"no printed tables in {PRINTED}: run from a checkout of the repository")
    return [_claim(file, row, cells) for file in files for row, cells in enumerate(printed(file), 1)]


def _place(file: str) -> tuple[int, list[int | str]]:
    """Return the sort key of a table: by source, then by name, with Table 2 before Table 10."""
    source = next((k for k, name in enumerate(SOURCES) if file.startswith(name)), len(SOURCES))
    return source, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file)]


def _claim(file: str, row: int, cells: dict[str, str]) -> Claim:
    names = [field.name for field in dataclasses.fields(Claim)][2:]
    if missing := [name for name in names if cells.get(name) is None]:
        raise RecordError(f"printed/{file}.csv, row {row}: no {', '.join(missing)}; add what is missing")
    for name, digits in (("value", cells["value"]), ("stderr", cells["stderr"] or "0")):
        if not re.fullmatch(r"-?\d+(\.\d+)?", digits):  # no exponent: the last digit gives the rounding
            raise RecordError(
                f"printed/{file}.csv, row {row}: {name} must be a number like -2.58, got {digits!r}"
            )
    return Claim(file, row, **{name: cells[name] for name in names})
