"""Select the configurations to run, and group those that are trained together."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from experiments.runner.experiment import Experiment
from experiments.runner.work import Group
from gilib.validation import check_choice


def select_configs(experiment: Experiment, scale: str, only: Sequence[str] = ()) -> list[Any]:
    """Return the different configurations of an experiment at a scale.

    Args:
        experiment: the experiment.
        scale: one of the experiment's scales.
        only: filters "field=value". Values of the same field are alternatives; all fields must match.

    Raises:
        ValueError: if there is no such scale, or if a filter has another form, names an unknown field, or
            matches nothing.
        RecordError: if the grid depends on records that are missing.
    """
    check_choice(scale, experiment.scales, "scale")
    configs = list(dict.fromkeys(experiment.configurations(scale)))
    wanted = _wanted(configs, only)
    matching = [
        config
        for config in configs
        if all(any(matches(getattr(config, k, None), v) for v in values) for k, values in wanted.items())
    ]
    if wanted and not matching:
        values = "; ".join(f"{key}: {', '.join(_values(configs, key))}" for key in wanted)
        raise ValueError(f"no configuration at scale {scale!r} has {' '.join(only)}. There are {values}")
    return matching


def make_groups(experiment: Experiment, configs: Iterable[Any]) -> list[Group]:
    """Group the configurations that are trained together, in the order of the grid.

    If complete groups are removed because they are recorded, the others do not change. So an interrupted run
    resumes with the same groups.

    >>> from dataclasses import make_dataclass
    >>> config = make_dataclass("Config", ["scale"], frozen=True)
    >>> grid = Experiment("two seeds at a time", config, iter, list, group=len, largest_group=2)
    >>> make_groups(grid, ["a", "bb", "c", "d"])
    [('a', 'c'), ('d',), ('bb',)]
    """
    if experiment.group is None:
        return [(config,) for config in configs]
    grouped: dict[Any, list[Any]] = {}
    for config in configs:
        grouped.setdefault(experiment.group(config), []).append(config)
    groups = []
    for members in grouped.values():
        size = experiment.largest_group or len(members)
        groups += [tuple(members[i : i + size]) for i in range(0, len(members), size)]
    return groups


def matches(value: Any, text: str) -> bool:
    """Return whether a setting equals a value that is given as text.

    >>> matches(0.01, "1e-2"), matches(True, "true"), matches("gi", "gi"), matches(1, "10")
    (True, True, True, False)
    """
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    return str(value) == text or (value == parsed and isinstance(value, bool) == isinstance(parsed, bool))


def _wanted(configs: Sequence[Any], only: Sequence[str]) -> dict[str, list[str]]:
    fields = dict.fromkeys(field.name for config in configs for field in dataclasses.fields(config))
    wanted: dict[str, list[str]] = {}
    for text in only:
        key, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"a filter has the form field=value, got {text!r}")
        if key not in fields:
            raise ValueError(f"unknown field {key!r} in {text!r}: the fields are {', '.join(fields)}")
        wanted.setdefault(key, []).append(value)
    return wanted


def _values(configs: Sequence[Any], key: str) -> list[str]:
    found = list(dict.fromkeys(str(getattr(config, key, None)) for config in configs))
    return found if len(found) <= 12 else [*found[:12], "..."]
