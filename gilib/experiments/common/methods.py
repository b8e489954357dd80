"""The methods and priors that tables compare, by the names that records have for them."""

from __future__ import annotations

import gilib
from gilib.posteriors import FromPrior
from gilib.priors import Prior

METHODS: tuple[str, ...] = ("fac", "li", "gi", "fac_gi")  # of the tables
Posteriors = gilib.Posterior | tuple[gilib.Posterior, gilib.Posterior]

PRIORS: dict[str, Prior] = {
    "StandardPrior": gilib.StandardPrior(),
    "NealPrior": gilib.NealPrior(),
    "ScalePrior": gilib.ScalePrior(),
    "SpatialIWPrior": gilib.SpatialIWPrior(),
    "SpatialIWPrior (reference)": gilib.SpatialIWPrior(scaling="reference"),
}


def posteriors(last: gilib.Posterior | None = None, local: Posteriors | None = None) -> dict[str, Posteriors]:
    """The posterior of every method; a pair is that of the hidden layers and that of the last one.

    Args:
        last: global inducing points; None: as the library has them.
        local: local inducing points; None: as the library has them.

    >>> list(posteriors())
    ['fac', 'li', 'gi', 'fac_gi', 'rand_gi']
    """
    last = last or gilib.GlobalInducing()
    return {
        "fac": gilib.Factorised(),
        "li": local or gilib.LocalInducing(),
        "gi": last,
        "fac_gi": (gilib.Factorised(), last),
        "rand_gi": (FromPrior(), last),
    }
