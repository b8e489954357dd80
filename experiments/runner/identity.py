"""The identity of a configuration: a hash of its settings, whatever the name and the fields of its class.

Fields with their default value are left out, so that a new field does not change the identity of existing
records. In return, records from before a field existed count as having its default. So the default of a new
field must be what was done before, and a default, once recorded, never changes its meaning.
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
    """Return the content hash of a configuration of an experiment: twelve hexadecimal digits.

    >>> from experiments.ober2021.toy import ToyConfig
    >>> identity("toy", ToyConfig()) == identity("toy", ToyConfig(seed=0))
    True
    """
    return _hash(name, type(config), dataclasses.asdict(config))


def record_identity(record: Mapping[str, Any], kind: type) -> str:
    """Return the identity of the configuration of a record.

    Args:
        record: the record; its own "id" is not read.
        kind: class of the configurations of its experiment.
    """
    return _hash(record["experiment"], kind, {**record["config"], "scale": record["scale"]})


def with_defaults(kind: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of missing fields, which older records do not have.

    >>> from experiments.ober2021.toy import ToyConfig
    >>> with_defaults(ToyConfig, {"method": "fac"})["seed"]
    0
    """
    full = dict(settings)
    for name, nested, default in _fields(kind):
        if nested and isinstance(full.get(name), Mapping):
            full[name] = with_defaults(nested, full[name])
        elif name not in full and default is not dataclasses.MISSING:
            full[name] = default
    return full


def restored(kind: type, settings: Mapping[str, Any]) -> Any:
    """Return the configuration with the settings of a record.

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
    """Return the names of settings that a class does not know, and of required settings that are missing.

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
    """Return the settings that differ from their defaults, also within fields that hold a dataclass."""
    chosen, defaults = dict(settings), _defaults(kind)
    for name, nested, _ in _fields(kind):
        if nested and isinstance(chosen.get(name), Mapping):
            chosen[name] = _chosen(nested, chosen[name])
    return {name: value for name, value in chosen.items() if _text(value) != defaults.get(name)}


@functools.cache
def _defaults(kind: type) -> dict[str, str]:
    """Return the text of every field's default; nested defaults are left out."""
    return {
        name: _text(_chosen(nested, default) if nested and isinstance(default, Mapping) else default)
        for name, nested, default in _fields(kind)
        if default is not dataclasses.MISSING
    }


@functools.cache
def _fields(kind: type) -> list[tuple[str, type | None, Any]]:
    """Return for every field its name, the dataclass that it holds or None, and its default as in records."""
    hints = typing.get_type_hints(kind)
    return [(each.name, _nested(hints[each.name]), _default(each)) for each in dataclasses.fields(kind)]


def _nested(hint: Any) -> type | None:
    """Return the dataclass that a field holds, alone or as the alternative to None."""
    kinds = (each for each in (hint, *typing.get_args(hint)) if isinstance(each, type))
    return next(filter(dataclasses.is_dataclass, kinds), None)


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    value = field.default if factory is dataclasses.MISSING else factory()
    return value if value is dataclasses.MISSING else json.loads(_text(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=dataclasses.asdict)
