"""Rebuild the start of a recorded training, so that a reader can repeat it or change one thing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from experiments.registry import EXPERIMENTS
from experiments.runner.experiment import Training
from experiments.runner.identity import restored
from experiments.runner.records import Record, diverged
from experiments.selecting import best_scale, recorded
from gilib.validation import check_choice


def build(name: str, *, scale: str = "", device: torch.device | str = "cpu", **settings: Any) -> Training:
    """Return network, likelihood, data and settings of a recorded training, before its first step.

    >>> import gilib
    >>> own = build("toy", method="gi", seed=0, normalise=True)
    >>> net, likelihood = own.start(prior=gilib.NealPrior(2.0))
    >>> history = gilib.fit(net, likelihood, own.x, own.y, **own.settings | {"steps": 2, "progress": False})
    >>> sorted({"elbo"} & own.measure(net, likelihood).keys() & own.record["metrics"].keys())
    ['elbo']

    Args:
        name: name of the experiment.
        scale: scale of the record; by default the largest at which these settings are recorded.
        device: device of the training.
        settings: fields of the experiment's configuration and their values; they must select one record.

    Raises:
        ValueError: if the experiment cannot build its network separately, or if no record, or more than one,
            has the settings.
        RecordError: if the file of records is damaged.
    """
    check_choice(name, EXPERIMENTS, "experiment")
    experiment = EXPERIMENTS[name]
    if experiment.build is None:
        able = ", ".join(name for name, each in EXPERIMENTS.items() if each.build is not None)
        raise ValueError(f"the networks of {name} are made within its run; those that can be had are {able}")
    fields = [each.name for each in dataclasses.fields(experiment.config)]
    for field in settings:
        check_choice(field, fields, f"field of {name}:")
    every = [each for each in recorded(name) if scale in ("", each["scale"]) and not diverged(each)]
    found = best_scale(
        [each for each in every if all(each["config"].get(key) == value for key, value in settings.items())]
    )
    if len(found) != 1:
        among, count = (found, len(found)) if found else (every, "no")
        raise ValueError(f"{count} records have these settings, and one is wanted. {_choices(among, fields)}")
    config = restored(experiment.config, {**found[0]["config"], "scale": found[0]["scale"]})
    return dataclasses.replace(experiment.build(config, torch.device(device)), record=found[0])


def _choices(records: Sequence[Record], fields: Sequence[str]) -> str:
    """List the settings in which records differ, with at most twelve values of each."""
    values = {each: list(dict.fromkeys(str(r["config"].get(each)) for r in records)) for each in fields}
    shown = {each: ", ".join(own[:12]) for each, own in values.items() if len(own) > 1}
    return "They differ in " + "; ".join(f"{each}: {own}" for each, own in shown.items())
