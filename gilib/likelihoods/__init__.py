"""Likelihoods: how targets scatter around the outputs of a network, and what that predicts."""

from gilib.likelihoods.base import Categorical, Likelihood
from gilib.likelihoods.correlated import CorrelatedGaussian
from gilib.likelihoods.gaussian import Gaussian, GaussianNoise
from gilib.likelihoods.heteroscedastic import HeteroscedasticGaussian
from gilib.likelihoods.per_output import PerOutputGaussian

__all__ = [
    "Categorical",
    "CorrelatedGaussian",
    "Gaussian",
    "GaussianNoise",
    "HeteroscedasticGaussian",
    "Likelihood",
    "PerOutputGaussian",
]
