"""Priors over the weights of a layer: every column of W is N(0, C/I), where I is the fan-in.

A prior (Ober & Aitchison, 2021, Sec. 2.3) is a frozen specification. The layer builds a module from it, which
draws the prior PRECISION I C⁻¹ as a structured operator, and holds the posterior of any hyper-parameters.
"""

from gilib.priors.base import Prior, PriorModule
from gilib.priors.scales import NealPrior, PerReplica, ScalePrior, StandardPrior
from gilib.priors.spatial import SpatialIWPrior

__all__ = ["NealPrior", "PerReplica", "Prior", "PriorModule", "ScalePrior", "SpatialIWPrior", "StandardPrior"]
