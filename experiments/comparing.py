"""Compare a record with a repetition of the same training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.runner.records import Record, diverged


def compared(old: Record, new: Record) -> str:
    """Describe the training in a line, then compare old and new value of each metric.

    Args:
        old: the existing record.
        new: the record of the repetition.

    >>> head = {"experiment": "toy", "scale": "smoke", "config": {"seed": 0}, "seconds": 2.0, "group": 1}
    >>> print(compared({**head, "metrics": {"elbo": -1.5}}, {**head, "metrics": {"elbo": -1.25}}))
    toy, scale smoke, seed=0: 2.0 s (recorded: 2.0 s)
      metric                        recorded          again     difference
      elbo                              -1.5          -1.25           0.25
    """
    settings = " ".join(f"{name}={value}" for name, value in old["config"].items() if name != "scale")
    lines = [
        f"{old['experiment']}, scale {old['scale']}, {settings}: {new.get('seconds')} s "
        f"(recorded: {old.get('seconds')} s)"
    ]
    if old.get("group", 1) != new.get("group", 1):
        lines.append(
            f"  it was trained as one of {old.get('group', 1)} replicas, and now as one of "
            f"{new.get('group', 1)}: rounding differs, and long trainings end elsewhere"
        )
    if old.get("data") != new.get("data"):
        lines.append("  the data are not those of the record")
    lines.append(f"  {'metric':24}{'recorded':>14} {'again':>14} {'difference':>14}")
    lines += [f"  {row}" for row in _rows(old["metrics"], new["metrics"])]
    lines += [
        f"  diverged: {name}" for name, record in (("recorded", old), ("again", new)) if diverged(record)
    ]
    return "\n".join(lines)


def _rows(old: Record, new: Record) -> Iterator[str]:
    for name in dict.fromkeys([*old, *new]):
        before, after = list(_numbers(old.get(name))), list(_numbers(new.get(name)))
        difference = _difference(before, after)
        yield f"{name:24}{_shown(before):>14} {_shown(after):>14} {difference:>14}"


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers of a metric, in order."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _numbers(each)
    elif isinstance(value, int | float):
        yield value


def _shown(numbers: list[float]) -> str:
    if len(numbers) == 1:
        return f"{numbers[0]:.6g}"
    return f"{len(numbers)} numbers" if numbers else "-"


def _difference(old: list[float], new: list[float]) -> str:
    """Return the difference, the largest one if there are several numbers."""
    if len(old) != len(new) or not old:
        return "-"
    return f"{max((b - a for a, b in zip(old, new, strict=True)), key=abs):.3g}"
