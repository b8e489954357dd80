"""The wording of the report: names, numbers, scales and records as text."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Sequence

from experiments.report.claims import Claim
from experiments.report.comparing import Comparison, Length, Totals, by_length, totals
from experiments.report.measuring import Measured, RecordLine

IDENTITY = ("dataset", "architecture", "model", "prior", "method", "baseline", "depth", "metric")
CAPITALS = {"elbo", "iwbo", "rmse", "dgp", "gp", "bnn", "mf", "star", "fc", "sghmc", "sgp", "ng", "dsvi"}
MOST_DECIMALS = 7  # records keep six significant digits


def headline(found: Sequence[Comparison]) -> str:
    """Say how many printed numbers are covered, and how they agree for each length of training."""
    count, parts = totals(found), by_length(found)
    full, short = (totals(parts[length]) for length in (Length.FULL, Length.SHORTER))
    return (
        f"{count.covered} of {count.claims} printed numbers ({share_text(count)}) are covered. "
        f"Trained as long as in the papers, {_agreeing(full)}. "
        f"Trained shorter, {_agreeing(short)}."
    )


def _agreeing(count: Totals) -> str:
    agree = f"{count.agrees} of {count.claims} agree within two combined standard errors"
    broken = f" and {count.diverged} diverged" if count.diverged else ""
    return f"{agree}, {count.better} are better, {count.disagree} are worse or differ{broken}"


def share_text(count: Totals) -> str:
    """Return the covered percentage, rounded down so that only a complete table has 100%."""
    percent = 100 * count.covered // max(1, count.claims)
    return f"{percent}%" if percent or not count.covered else "<1%"


def title(claim: Claim) -> str:
    """Return the title of a claim's table."""
    return f"{claim.source}, {claim.table}"


def subject(group: Sequence[Comparison]) -> str:
    """Say what the numbers of a printed table measure, and what they have in common."""
    metrics = dict.fromkeys(f"{as_words(each.claim.metric)} ({each.claim.units})" for each in group)
    shared = {name: {getattr(each.claim, name) for each in group} for name in IDENTITY if name != "metric"}
    common = [
        f"{name} {as_words(*values)}"
        for name, values in shared.items()
        if len(values) == 1 and "" not in values
    ]
    return "; ".join([", ".join(metrics), *common])


def notes(group: Sequence[Comparison]) -> list[str]:
    """Return the different notes of a printed table, in the order of their first occurrence."""
    return list(dict.fromkeys(each.claim.note for each in group if each.claim.note))


def as_words(name: str) -> str:
    """Write a name from the files as words.

    >>> as_words("elbo_per_datapoint"), as_words("mf_dgp")
    ('ELBO per datapoint', 'MF DGP')
    """
    return " ".join(word.upper() if word in CAPITALS else word for word in name.split("_"))


def number_text(number: float, places: int, sign: str = "") -> str:
    """Format a number with a true minus sign.

    >>> number_text(-1.23, 1), number_text(0.5, 1, "+")
    ('−1.2', '+0.5')
    """
    return f"{number:{sign}.{places}f}".replace("-", "−")


def printed_text(value: str, stderr: str) -> str:
    """Format a printed number without changing its digits.

    >>> printed_text("-2.50", "0.1")
    '−2.50 ± 0.1'
    """
    return value.replace("-", "−") + (f" ± {stderr}" if stderr else "")


def ours_text(measured: Measured, printed_decimals: int) -> str:
    """Format mean ± error with two digits of the error, or one run with one digit more than printed."""
    error = measured.error
    if not error:
        return number_text(measured.mean, printed_decimals + 1)
    places = min(max(0, 1 - math.floor(math.log10(error))), MOST_DECIMALS)
    return f"{number_text(measured.mean, places)} ± {error:.{places}f}"


def scale_text(measured: Measured) -> str:
    """Name the scale, and say if repetitions are missing."""
    return "paper, in part" if measured.scale == "paper" and not measured.is_whole else measured.scale


def runs_text(measured: Measured) -> str:
    """Say how many runs there are, how many are needed, and how many diverged."""
    total = f" of {measured.wanted}" if measured.wanted else ""
    broken = f", {measured.diverged} diverged" if measured.diverged else ""
    return f"{len(measured.sources)}{total}{broken}"


def errors_text(comparison: Comparison) -> str:
    """Say whose standard errors are known."""
    measured = comparison.measured
    known = {"ours": measured and measured.error, "paper": comparison.claim.error}
    names = [name for name, error in known.items() if error is not None]
    spread = ", spread" if measured and measured.spread else ""
    return {0: "neither", 1: "".join(names), 2: "both"}[len(names)] + spread


def record_text(measured: Measured) -> str:
    """Return file, line and id of the first record, and the number of other records."""
    first, more = measured.sources[0], len(measured.sources) - 1
    place = f"{first.record['experiment']}.jsonl:{first.line} {first.record['id']}"
    return place + (f" +{more}" if more else "")


def command_text(measured: Measured) -> str:
    """Return the command that repeats the trainings.

    >>> command_text(Measured("paper", (), (RecordLine(1, {"experiment": "toy"}),), only=("prior=a b",)))
    "python -m experiments run toy --scale paper --only 'prior=a b' --again"
    """
    name = measured.sources[0].record["experiment"]
    chosen = shlex.join(["run", name, "--scale", measured.scale, "--only", *measured.only, "--again"])
    return f"python -m experiments {chosen}"


def lines_text(sources: Sequence[RecordLine]) -> str:
    """Format line numbers, with consecutive lines as ranges.

    >>> lines_text([RecordLine(line, {}) for line in (1, 2, 3, 7)])
    'lines 1–3, 7'
    """
    lines = sorted(source.line for source in sources)
    runs = itertools.groupby(enumerate(lines), key=lambda pair: pair[1] - pair[0])
    ends = [[line for _, line in run] for _, run in runs]
    texts = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in ends]
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(texts)}"
