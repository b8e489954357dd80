"""Import optional packages when they are used; the error for a missing one says how to install it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

INSTALL = "pip install -c constraints.txt -e '.[{extra}]'"  # in a checkout: gilib is on no package index


def require(module: str, extra: str) -> ModuleType:
    """Import a module that an optional extra of gilib installs.

    Args:
        module: name of the module.
        extra: the extra that installs it.

    Raises:
        ImportError: if the module is missing; the message names the extra.

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
    """Import a module that gilib does not require.

    Args:
        module: name of the module.
        package: package that provides it.
        purpose: completes "is needed to ..." in the error.

    Raises:
        ImportError: if the module is missing; the message names the package and the purpose.

    >>> require_package("math", "python", "to round").floor(2.5)
    2
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{package} is needed to {purpose} and cannot be imported ({error}): pip install {package}"
        ) from error
