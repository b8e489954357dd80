"""Packages that gilib itself does without: imported when they are used, named when they are missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

INSTALL = "pip install -c constraints.txt -e '.[{extra}]'"  # in a checkout: gilib is on no package index


def require(module: str, extra: str) -> ModuleType:
    """Import a module that an optional extra of gilib installs.

    Args:
        module: its name.
        extra: the extra that brings it.

    Raises:
        ImportError: naming the extra, if the module is missing.

    >>> require("math", "hmc").floor(2.5)
    2
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} is needed for this and cannot be imported ({error}): "
            f"{INSTALL.format(extra=extra)} in the checkout of gilib"
        ) from error


def require_package(module: str, package: str, purpose: str) -> ModuleType:
    """Import a module that gilib itself does without.

    Args:
        module: its name.
        package: what to install for it.
        purpose: what it is needed for, said in the error.

    Raises:
        ImportError: naming the package and the purpose, if the module is missing.

    >>> require_package("math", "python", "to round").floor(2.5)
    2
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{package} is needed to {purpose} and cannot be imported ({error}): pip install {package}"
        ) from error
