"""Tables and captions of pages: means with errors, and where recorded numbers come from."""

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
    """Mean and its standard error, s/√n; the error of a single value is zero.

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
    """A number with a true minus sign, which zero has not; a dash for none.

    >>> number(-1.0), number(-0.001), number(None)
    ('−1.00', '0.00', '–')
    """
    return "–" if value is None else f"{value:z.{digits}f}".replace("-", "−")


def listed(words: Iterable[str]) -> str:
    """Words as a sentence has them; "none" if there are none.

    >>> listed(["yacht", "boston", "wine"]), listed(["yacht"]), listed([])
    ('yacht, boston and wine', 'yacht', 'none')
    """
    *before, last = list(words) or ["none"]
    return f"{', '.join(before)} and {last}" if before else last


def with_error(values: Iterable[float], digits: int) -> str:
    """Mean ± standard error as text, with a true minus sign and unbreakable spaces; of one value, itself.

    >>> with_error([-1.0, -3.0], 1).split(), with_error([2.0], 1)
    (['−2.0', '±', '1.0'], '2.0')
    """
    found = list(values)
    mean, error = mean_and_error(found)
    if len(found) == 1:
        return number(mean, digits)
    return f"{number(mean, digits)}\u00a0±\u00a0{number(error, digits)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """A table: columns of numbers to the right, the first one and columns of words to the left.

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
    """Whether a cell, its emphasis and brackets aside, is empty, a dash, or begins with a digit."""
    plain = cell.lstrip("*(+−-±< ")
    return not plain or plain[0].isdigit() or plain[0] == "–"


def provenance(*groups: Sequence[Mapping[str, Any]]) -> str:
    """The file, scale and repetitions of recorded results, for a caption.

    Args:
        groups: records, each group of one experiment; data sets that have other scales are named with them.
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
    """What a table shows, and where its records come from; `groups` as for `provenance`."""
    return Markdown(f"*{text} Records: {provenance(*groups)}.*")


def _scale(scale: str, records: Sequence[Mapping[str, Any]], is_one_of_several: bool) -> str:
    sets = dict.fromkeys(record["config"].get("dataset", "") for record in records)
    of = f" ({', '.join(sets)})" if is_one_of_several else ""
    return f"scale “{scale}”{of}, {_repetitions(records)}"


def _repetitions(records: Sequence[Mapping[str, Any]]) -> str:
    """How many published splits, repetitions or seeds records are about; without any, how many there are."""
    config = records[0]["config"]
    key = next((key for key in ("split", "repetition", "seed") if key in config), None)
    count = len(records) if key is None else len({record["config"][key] for record in records})
    return f"{count} {key or 'record'}{'s' if count > 1 else ''}"
