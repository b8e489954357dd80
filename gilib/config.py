"""Specifications as plain data: what a file must hold to rebuild a network without running code."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from torch import nn

Config = dict[str, Any]


def spec_config(spec: Any) -> Config:
    """A frozen specification as a dictionary: its class name and its fields.

    >>> from gilib.priors import NealPrior
    >>> spec_config(NealPrior())
    {'type': 'NealPrior', 'scale': 1.0}
    """
    return {
        "type": type(spec).__name__,
        **{field.name: _plain(getattr(spec, field.name)) for field in dataclasses.fields(spec)},
    }


def _plain(value: Any) -> Any:
    """A field as plain data: a specification as a dictionary, a tuple as a list."""
    if dataclasses.is_dataclass(value):
        return spec_config(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def spec_from_config(config: Config, family: type) -> Any:
    """Rebuild a specification of a `family`, a base class, from its dictionary."""
    fields = dict(config)
    name = fields.pop("type", None)
    for kind in subclasses(family):
        if kind.__name__ == name:
            return kind(**{key: _from_plain(value, family) for key, value in fields.items()})
    known = ", ".join(sorted(kind.__name__ for kind in subclasses(family)))
    raise ValueError(f"unknown {family.__name__} {name!r}: this version knows {known}")


def _from_plain(value: Any, family: type) -> Any:
    if isinstance(value, list):
        return tuple(_from_plain(part, family) for part in value)
    return spec_from_config(value, family) if isinstance(value, dict) else value


def subclasses(family: type) -> list[type[Any]]:
    """All subclasses of a class, at any depth."""
    found: list[type[Any]] = []
    kind: type[Any]
    for kind in family.__subclasses__():
        found += [kind, *subclasses(kind)]
    return found


def module_config(module: nn.Module) -> Config:
    """A parameter-free module of torch.nn as its name and the arguments that its constructor takes."""
    name = type(module).__name__
    if type(module) is nn.Sequential:
        return {"type": name, "modules": [module_config(part) for part in module]}
    if getattr(nn, name, None) is not type(module):
        raise ValueError(
            f"{name} is not a module of torch.nn: a file cannot hold its code, so gilib cannot save it"
        )
    arguments = inspect.signature(type(module).__init__).parameters
    return {
        "type": name,
        "arguments": {key: getattr(module, key) for key in arguments if hasattr(module, key)},
    }


def module_from_config(config: Config) -> nn.Module:
    """Rebuild a module of torch.nn from its name and arguments."""
    if config["type"] == "Sequential":
        return nn.Sequential(*(module_from_config(part) for part in config["modules"]))
    kind = getattr(nn, str(config["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"unknown torch.nn module {config['type']!r}")
    module: nn.Module = kind(**config["arguments"])
    return module
