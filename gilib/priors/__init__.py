"""Priors over the weights of a layer: every column of W is N(0, C/I), where I is the fan-in.

The module that a layer builds draws the prior PRECISION I C⁻¹ (Ober & Aitchison, 2021, Sec. 2.3).
"""

from gilib.priors.base import Prior, PriorModule
from gilib.priors.scales import NealPrior, PerReplica, ScalePrior, StandardPrior
from gilib.priors.spatial import SpatialIWPrior

__all__ = ["NealPrior", "PerReplica", "Prior", "PriorModule", "ScalePrior", "SpatialIWPrior", "StandardPrior"]
