"""Likelihoods: distributions of targets given the outputs of a network, and the predictions they lead to."""

from gilib.likelihoods.base import Categorical, Likelihood
from gilib.likelihoods.correlated import CorrelatedGaussian
from gilib.likelihoods.gaussian import Gaussian, GaussianNoise, PerOutputGaussian
from gilib.likelihoods.heteroscedastic import HeteroscedasticGaussian
from gilib.likelihoods.linked import Beta, Gamma, NegativeBinomial, Poisson
from gilib.likelihoods.student import StudentT

__all__ = [
    "Beta",
    "Categorical",
    "CorrelatedGaussian",
    "Gamma",
    "Gaussian",
    "GaussianNoise",
    "HeteroscedasticGaussian",
    "Likelihood",
    "NegativeBinomial",
    "PerOutputGaussian",
    "Poisson",
    "StudentT",
]
