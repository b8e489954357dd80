"""Import optional packages when they are used; the error for a missing one says how to install it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

INSTALL = "pip install -c constraints.txt -e '.[{extra}]'"  # in a checkout: gilib is on no package index


def require(module: str, extra: str) -> ModuleType:
    """Import a module that an extra of gilib installs, or raise an ImportError that names the extra."""
    needed = f"{module.partition('.')[0]} is needed for this"
    return _imported(module, needed, f"{INSTALL.format(extra=extra)} in the checkout of gilib")


def require_package(module: str, package: str, purpose: str) -> ModuleType:
    """Import a module that gilib does not require, or raise an ImportError that names its package.

    `purpose` completes "is needed to ..." in the error.
    """
    return _imported(module, f"{package} is needed to {purpose}", f"pip install {package}")


def _imported(module: str, needed: str, remedy: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"{needed} and cannot be imported ({error}): {remedy}") from error
