"""The identity of a configuration: what it sets, not what its class is called or which fields it has.

Fields at their default are left out, so that a new field changes nothing that is recorded. The price: a
record from before a field existed is taken to have the field's default. The default of a new field is
therefore what was done before it, and a default, once recorded, never changes its meaning.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import typing
from collections.abc import Mapping
from typing import Any


def identity(name: str, config: Any) -> str:
    """The content hash of a frozen configuration of an experiment: twelve hexadecimal digits.

    >>> from experiments.ober2021.toy import ToyConfig
    >>> identity("toy", ToyConfig()) == identity("toy", ToyConfig(seed=0))
    True
    """
    return _hash(name, type(config), dataclasses.asdict(config))


def record_identity(record: Mapping[str, Any], kind: type) -> str:
    """The identity of the configuration that a record holds.

    Args:
        record: any; its own "id" is not read.
        kind: the class of the configurations of its experiment.
    """
    return _hash(record["experiment"], kind, {**record["config"], "scale": record["scale"]})


def filled(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the defaults of those fields that they lack, as records from before these fields do.

    >>> from experiments.ober2021.toy import ToyConfig
    >>> filled(ToyConfig, {"method": "fac"})["seed"]
    0
    """
    full = dict(settings)
    for name, nested, default in _fields(kind):
        if nested and isinstance(full.get(name), Mapping):
            full[name] = filled(nested, full[name])
        elif name not in full and default is not dataclasses.MISSING:
            full[name] = default
    return full


def restored(kind: type, settings: Mapping[str, Any]) -> Any:
    """The configuration with these settings, as records write them.

    >>> from experiments.ober2021.toy import ToyConfig
    >>> restored(ToyConfig, {"method": "fac", "seed": 3}) == ToyConfig("fac", 3)
    True
    """
    values = {}
    for name, nested, _ in _fields(kind):
        if name in settings:
            value = settings[name]
            if nested and isinstance(value, Mapping):
                value = restored(nested, value)
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def misfits(kind: type, settings: Mapping[str, Any], within: str = "") -> tuple[list[str], list[str]]:
    """Names of settings that a class of configurations does not have, and of those that it needs but lacks.

    >>> from experiments.ober2021.uci import UciConfig
    >>> misfits(UciConfig, {"dataset": "yacht", "method": "gi", "prior": "NealPrior", "split": 0, "heat": 1})
    (['heat'], ['lr'])
    """
    fields = {name: (nested, default) for name, nested, default in _fields(kind)}
    unknown = [within + name for name in settings if name not in fields]
    missing = [within + name for name, (_, default) in fields.items() if default is dataclasses.MISSING]
    missing = [name for name in missing if name.removeprefix(within) not in settings]
    for name, (nested, _) in fields.items():
        if nested and isinstance(inner := settings.get(name), Mapping):
            more = misfits(nested, inner, f"{within}{name}.")
            unknown, missing = unknown + more[0], missing + more[1]
    return unknown, missing


def _hash(name: str, kind: type, settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(_text([name, _chosen(kind, settings)]).encode()).hexdigest()[:12]


def _chosen(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those at their default; within a field that holds a dataclass, likewise."""
    chosen, defaults = dict(settings), _defaults(kind)
    for name, nested, _ in _fields(kind):
        if nested and isinstance(chosen.get(name), Mapping):
            chosen[name] = _chosen(nested, chosen[name])
    return {name: value for name, value in chosen.items() if _text(value) != defaults.get(name)}


@functools.cache
def _defaults(kind: type) -> dict[str, str]:
    """The text of every field's default, without what is at its default within."""
    return {
        name: _text(_chosen(nested, default) if nested and isinstance(default, Mapping) else default)
        for name, nested, default in _fields(kind)
        if default is not dataclasses.MISSING
    }


@functools.cache
def _fields(kind: type) -> list[tuple[str, type | None, Any]]:
    """Name, dataclass that it holds (or None) and default, as records write it, of every field."""
    hints = typing.get_type_hints(kind)
    return [(each.name, _nested(hints[each.name]), _default(each)) for each in dataclasses.fields(kind)]


def _nested(hint: Any) -> type | None:
    """The dataclass that a field holds, alone or as the alternative to None."""
    kinds = (each for each in (hint, *typing.get_args(hint)) if isinstance(each, type))
    return next(filter(dataclasses.is_dataclass, kinds), None)


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    return value if value is dataclasses.MISSING else json.loads(_text(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dataclasses.asdict)
