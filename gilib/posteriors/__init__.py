"""Approximate posteriors over weights, and over the inducing outputs of Gaussian processes."""

from gilib.posteriors.base import (
    BuildContext,
    InducingPosterior,
    Posterior,
    PosteriorModule,
    WeightDistribution,
    WeightParameter,
)
from gilib.posteriors.conjugate import Conjugate, ConjugateWeights
from gilib.posteriors.dropout import Dropout
from gilib.posteriors.factorised import Factorised, FactorisedKernels, FactorisedWeights
from gilib.posteriors.free import FreeGaussian, FreeInducing, PropagatedGaussian, PropagatedInducing
from gilib.posteriors.inducing import GlobalInducing, InducingWeights, LocalInducing
from gilib.posteriors.matrix_gaussian import MatrixGaussian, MatrixGaussianWeights
from gilib.posteriors.point import PointEstimate, PointWeights
from gilib.posteriors.prior import FromPrior
from gilib.posteriors.pseudo import PseudoData

__all__ = [
    "BuildContext",
    "Conjugate",
    "ConjugateWeights",
    "Dropout",
    "Factorised",
    "FactorisedKernels",
    "FactorisedWeights",
    "FreeGaussian",
    "FreeInducing",
    "FromPrior",
    "GlobalInducing",
    "InducingPosterior",
    "InducingWeights",
    "WeightDistribution",
    "LocalInducing",
    "MatrixGaussian",
    "MatrixGaussianWeights",
    "PointEstimate",
    "PointWeights",
    "Posterior",
    "PosteriorModule",
    "PropagatedGaussian",
    "PropagatedInducing",
    "PseudoData",
    "WeightParameter",
]
