"""Priors over the weights of a layer: every column of W is N(0, C/I), I the fan-in.

Ober & Aitchison (2021), Sec. 2.3.

A prior is a frozen specification; the layer builds a module from it that holds the variational parameters of
the prior's own hyper-parameters, if it has any, and draws the prior PRECISION I C⁻¹ as a structured operator.
"""

from gilib.priors.base import Prior, PriorModule
from gilib.priors.replicas import PerReplica
from gilib.priors.scales import NealPrior, ScalePrior, StandardPrior
from gilib.priors.spatial import SpatialIWPrior

__all__ = [
    "NealPrior",
    "PerReplica",
    "Prior",
    "PriorModule",
    "ScalePrior",
    "SpatialIWPrior",
    "StandardPrior",
]
