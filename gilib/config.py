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
    return {"type": type(spec).__name__, **dataclasses.asdict(spec)}


def spec_from_config(config: Config, family: type) -> Any:
    """Rebuild a specification of a `family`, a base class, from its dictionary."""
    fields = dict(config)
    name = fields.pop("type", None)
    for kind in subclasses(family):
        if kind.__name__ == name:
            return kind(**fields)
    known = ", ".join(sorted(kind.__name__ for kind in subclasses(family)))
    raise ValueError(f"unknown {family.__name__} {name!r}: this version knows {known}")


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
