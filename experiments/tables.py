"""Tables and captions for the book: means with errors, and the origin of recorded numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Markdown(str):
    """Text that a notebook shows as Markdown."""

    def _repr_markdown_(self) -> str:
        return str(self)


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean and its standard error, s/√n; the error of a single value is zero.

    Raises:
        ValueError: if there are no values.

    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    found = list(values)
    if not found:
        raise ValueError("a mean needs at least one value, got none: is the experiment recorded?")
    error = statistics.stdev(found) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return statistics.mean(found), error


def number(value: float | None, digits: int = 2) -> str:
    """Format a number with a true minus sign, never before a zero; None becomes a dash.

    >>> number(-1.0), number(-0.001), number(None)
    ('−1.00', '0.00', '–')
    """
    return "–" if value is None else f"{value:z.{digits}f}".replace("-", "−")


def listed(words: Iterable[str]) -> str:
    """Join words with commas and "and"; return "none" if there are none.

    >>> listed(["yacht", "boston", "wine"]), listed(["yacht"]), listed([])
    ('yacht, boston and wine', 'yacht', 'none')
    """
    *before, last = list(words) or ["none"]
    return f"{', '.join(before)} and {last}" if before else last


def with_error(values: Iterable[float], digits: int) -> str:
    """Format mean ± standard error, with true minus signs and non-breaking spaces, or a single value.

    >>> with_error([-1.0, -3.0], 1).split(), with_error([2.0], 1)
    (['−2.0', '±', '1.0'], '2.0')
    """
    found = list(values)
    mean, error = mean_and_error(found)
    if len(found) == 1:
        return number(mean, digits)
    return f"{number(mean, digits)}\u00a0±\u00a0{number(error, digits)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """Return a Markdown table; columns of numbers, except the first, are aligned to the right.

    >>> print(table(["method", "ELBO", "verdict"], [["gi", "1.0", "agrees"]]))
    | method | ELBO | verdict |
    | :-- | --: | :-- |
    | gi | 1.0 | agrees |
    """
    body = [list(row) for row in rows]
    numeric = [all(_begins_a_number(row[k]) for row in body) for k in range(len(header))]
    lines = [header, [":--", *("--:" if right else ":--" for right in numeric[1:])], *body]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _begins_a_number(cell: str) -> bool:
    """Return whether a cell, without emphasis and brackets, is empty or a dash, or begins with a digit."""
    plain = cell.lstrip("*(+−-±< ")
    return not plain or plain[0].isdigit() or plain[0] == "–"


def provenance(*groups: Sequence[Mapping[str, Any]]) -> str:
    """Name the file, scale and number of repetitions of recorded results, for a caption.

    Args:
        groups: groups of records, each of one experiment. Data sets are named if their scales differ.
    """
    origins = []
    for records in groups:
        scales: dict[str, list[Mapping[str, Any]]] = {}
        for record in records:
            scales.setdefault(record["scale"], []).append(record)
        said = [_scale(scale, found, len(scales) > 1) for scale, found in scales.items()]
        origins.append(f"results/{records[0]['experiment']}.jsonl, {', '.join(said)}")
    return "; ".join(origins)


def caption(text: str, *groups: Sequence[Mapping[str, Any]]) -> Markdown:
    """Return a caption that also says where the records come from; `groups` as for `provenance`."""
    return Markdown(f"*{text} Records: {provenance(*groups)}.*")


def _scale(scale: str, records: Sequence[Mapping[str, Any]], is_one_of_several: bool) -> str:
    sets = dict.fromkeys(record["config"].get("dataset", "") for record in records)
    of = f" ({', '.join(sets)})" if is_one_of_several else ""
    return f"scale “{scale}”{of}, {_repetitions(records)}"


def _repetitions(records: Sequence[Mapping[str, Any]]) -> str:
    """Count the different splits, repetitions or seeds of records; without these, count the records."""
    config = records[0]["config"]
    key = next((key for key in ("split", "repetition", "seed") if key in config), None)
    count = len(records) if key is None else len({record["config"][key] for record in records})
    return f"{count} {key or 'record'}{'s' if count > 1 else ''}"
