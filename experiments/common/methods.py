"""The methods and priors that tables compare, by their names in records."""

from __future__ import annotations

from collections.abc import Callable

import gilib
from gilib.posteriors import FromPrior
from gilib.priors import Prior

METHODS: tuple[str, ...] = ("fac", "li", "gi", "fac_gi")  # in the order of the tables
Posteriors = gilib.posteriors.Posterior | tuple[gilib.posteriors.Posterior, gilib.posteriors.Posterior]

PRIORS: dict[str, Prior] = {
    "StandardPrior": gilib.StandardPrior(),
    "NealPrior": gilib.NealPrior(),
    "ScalePrior": gilib.ScalePrior(),
    "SpatialIWPrior": gilib.SpatialIWPrior(),
    "SpatialIWPrior (reference)": gilib.SpatialIWPrior(scaling="reference"),
}


def posterior_of(
    method: str,
    last: Callable[[], gilib.posteriors.Posterior] = gilib.GlobalInducing,
    local: Callable[[], Posteriors] = gilib.LocalInducing,
) -> Posteriors:
    """Return the posterior of a method, or a pair for the hidden layers and the last layer.

    Args:
        method: "fac", "li", "gi", "fac_gi", "li_gi" or "rand_gi".
        last: constructs a posterior with global inducing points.
        local: constructs a posterior with local inducing points.

    >>> posterior_of("rand_gi")[0]
    FromPrior()
    """
    makers: dict[str, Callable[[], Posteriors]] = {
        "fac": gilib.Factorised,
        "li": local,
        "gi": last,
        "fac_gi": lambda: (gilib.Factorised(), last()),
        "li_gi": lambda: (gilib.LocalInducing(), last()),
        "rand_gi": lambda: (FromPrior(), last()),
    }
    return makers[method]()


def ends_global(method: str) -> bool:
    """Return whether the last layer of a method has global inducing points, which start at targets.

    >>> [ends_global(method) for method in METHODS]
    [False, False, True, True]
    """
    return method.endswith("gi")
