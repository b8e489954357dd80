"""Deep Gaussian processes with one joint Gaussian over the inducing outputs of all layers."""

from gilib.structured.families import Family, FullyCoupled, MeanField, ProcessIndex, StripesAndArrow
from gilib.structured.gaussian import JointDistribution, JointGaussian
from gilib.structured.layer import StructuredGP
from gilib.structured.pattern import Pattern
from gilib.structured.process import Process

__all__ = [
    "Family",
    "FullyCoupled",
    "JointGaussian",
    "JointDistribution",
    "MeanField",
    "Pattern",
    "ProcessIndex",
    "Process",
    "StripesAndArrow",
    "StructuredGP",
]
