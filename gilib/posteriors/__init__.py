"""Approximate posteriors over weights: factorised, local inducing, global inducing, or the prior itself."""

from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.posteriors.factorised import Factorised, FactorisedWeights
from gilib.posteriors.inducing import GlobalInducing, InducingWeights, LocalInducing
from gilib.posteriors.prior import FromPrior

__all__ = [
    "BuildContext",
    "Factorised",
    "FactorisedWeights",
    "FromPrior",
    "GlobalInducing",
    "InducingWeights",
    "LocalInducing",
    "Posterior",
    "PosteriorModule",
]
