"""Describe the parts of a model as plain data, and rebuild them without running code from a file.

A description holds the name of a class and the arguments of its constructor. Classes of gilib have short
names, `"Linear"`; other names include the module, `"mypackage.layers:Fourier"`. Rebuilding looks the name up
among the classes that are defined at that moment; it never imports a module named in a file.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections import OrderedDict
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from torch import Tensor, nn

from gilib.arguments import VARIADIC, Checked

__all__ = ["Part", "Specification", "describe", "plain", "rebuild", "type_name"]

ConfigDict = dict[str, Any]


class Part(Checked):
    """Base of everything that a file can describe: layers, posteriors, priors and likelihoods."""

    def config(self) -> ConfigDict:
        """Return the arguments of the constructor that rebuild this part: the attributes of their names.

        They may be numbers, text, other parts, and lists of these. Parameters and buffers are in the state.

        Raises:
            NotImplementedError: if an argument has no attribute of its name, or a tensor that is not saved.
        """
        _, *arguments = inspect.signature(type(self).__init__).parameters.values()  # without `self`
        names = [argument.name for argument in arguments if argument.kind not in VARIADIC]
        missing = [name for name in names if not hasattr(self, name)]
        if missing:
            raise NotImplementedError(
                f"{type(self).__name__} has no config(): write one to save it, as it has no attribute "
                f"{missing[0]}"
            )
        found = {name: getattr(self, name) for name in names}
        tensors = [name for name, value in found.items() if isinstance(value, Tensor)]
        if lost := [name for name in tensors if name in vars(self)]:  # no parameter, buffer or property
            raise NotImplementedError(
                f"{type(self).__name__} has no config(): write one to save it, as files do not hold the "
                f"tensor {lost[0]}, which is neither a parameter nor a buffer"
            )
        return {name: value for name, value in found.items() if name not in tensors}

    @classmethod
    def from_config(cls, config: ConfigDict) -> Self:
        """Build a part from its arguments; descriptions become parts, and lists become tuples."""
        return cls(**{name: _rebuilt(value) for name, value in config.items()})


class Specification(Part):
    """Base of parts that are frozen dataclasses, described by their fields."""

    def __repr__(self) -> str:
        """Show the fields that differ from their defaults, for classes declared with `repr=False`."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = {field.name: getattr(self, field.name) for field in fields}
        shown = (f"{f.name}={given[f.name]!r}" for f in fields if given[f.name] != f.default)
        return f"{type(self).__name__}({', '.join(shown)})"


def type_name(kind: type) -> str:
    """Return the name of a class in files."""
    own = kind.__module__.partition(".")[0] == __package__
    return kind.__name__ if own else f"{kind.__module__}:{kind.__qualname__}"


def describe(part: Part) -> ConfigDict:
    """Return the description of a part as plain data.

    Raises:
        ValueError: if its config() has an entry "type".

    >>> from gilib.priors import NealPrior
    >>> describe(NealPrior())
    {'type': 'NealPrior', 'scale': 1.0, 'learn': False}
    """
    config = plain(part.config())
    if "type" in config:
        raise ValueError(
            f"config() of {type(part).__name__} has an entry 'type', where files keep the class: leave it "
            "out, or give the argument another name"
        )
    return {"type": type_name(type(part)), **config}


def plain(value: Any) -> Any:
    """Convert parts to dictionaries, tuples and arrays to lists, and NumPy numbers to Python's."""
    if isinstance(value, Part):
        return describe(value)
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | nn.ModuleList):
        return [plain(entry) for entry in value]
    if isinstance(value, Real) and not isinstance(value, bool):
        return int(value) if isinstance(value, Integral) else float(value)
    return value


def rebuild(description: ConfigDict, family: type[Any]) -> Any:
    """Build a part from its description; `family` is its base class.

    Raises:
        ValueError: if there is no class of this name; the message names the module to import.

    >>> from gilib.priors import Prior
    >>> rebuild({"type": "NealPrior", "scale": 2.0}, Prior)
    NealPrior(scale=2.0)
    """
    config = dict(description)
    return _find(config.pop("type", None), family).from_config(config)


def _rebuilt(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_rebuilt(entry) for entry in value)
    return rebuild(value, Part) if isinstance(value, dict) and "type" in value else value


def _find(name: Any, family: type[Any]) -> type[Part]:
    """Return the class of this name: the newest, if a notebook's cell that defines it ran twice."""
    known = {type_name(kind): kind for kind in subclasses(family) if not inspect.isabstract(kind)}
    if name in known:
        return known[name]
    raise ValueError(f"unknown {family.__name__.lower()} {name!r}: {_advice(name, sorted(known))}")


def _advice(name: Any, known: list[str]) -> str:
    module, colon, kind = str(name).partition(":")
    if not colon:
        return f"gilib knows {', '.join(other for other in known if ':' not in other)}"
    if module == "__main__":
        return f"define {kind} first, as the script or notebook did that wrote the file"
    if module in sys.modules:
        return f"{module} is imported, but it defines no {kind} of this kind"
    return f"import {module} first, then try again"


def subclasses(family: type[Any]) -> list[type[Any]]:
    """Return all direct and indirect subclasses; those of one base are in the order of their definition."""
    found: list[type[Any]] = []
    for kind in family.__subclasses__():
        found += [kind, *subclasses(kind)]
    return found


def module_config(module: nn.Module) -> ConfigDict:
    """Describe a module of torch.nn by its name and the arguments of its constructor, without parameters."""
    name = type(module).__name__
    if type(module) is nn.Sequential:
        parts = {key: module_config(part) for key, part in module._modules.items() if part}
        return {"type": name, "modules": parts}
    if getattr(nn, name, None) is not type(module):
        raise ValueError(
            f"{name} is not a module of torch.nn: a file cannot hold its code, so gilib cannot save it. Keep "
            "net.state_dict(), and load it into a network that the same lines have made"
        )
    arguments = inspect.signature(type(module).__init__).parameters
    found = {key: getattr(module, key) for key in arguments if hasattr(module, key)}
    if not isinstance(found.get("bias", True), bool):
        found["bias"] = found["bias"] is not None
    return {"type": name, "arguments": found}


def module_from_config(config: ConfigDict) -> nn.Module:
    """Rebuild a module of torch.nn from its name and arguments."""
    if config["type"] == "Sequential":
        return nn.Sequential(OrderedDict((k, module_from_config(v)) for k, v in config["modules"].items()))
    kind = getattr(nn, str(config["type"]), None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"unknown torch.nn module {config['type']!r}")
    return kind(**config["arguments"])
