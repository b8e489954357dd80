"""gilib: structured posteriors for Bayesian neural networks and deep Gaussian processes.

A layer draws a function: `draw = net.draw(10)` is ten functions, `draw(x)` evaluates them, `draw.log_pq` is
log P - log Q of what was drawn.
"""

from gilib import data, distributions, metrics, models, training
from gilib.convolution import autocorrelation
from gilib.draws import Composition, Draw, LocalReparameterisation
from gilib.dual_regression import DualWeightPosterior, regress_dual
from gilib.layers import Conv2d, InducingBatchNorm, Layer, Linear, Pointwise, Residual, Sequential, Sum
from gilib.likelihoods import Categorical, Gaussian, Likelihood
from gilib.linalg import FactorisationError
from gilib.network import Network
from gilib.objectives import SteppedTempering, elbo, iwbo
from gilib.persistence import CheckpointError, load, save
from gilib.posteriors import BuildContext, Factorised, FromPrior, GlobalInducing, LocalInducing, Posterior
from gilib.prediction import CategoricalPrediction, GaussianPrediction, predict
from gilib.priors import NealPrior, PerReplica, Prior, ScalePrior, SpatialIWPrior, StandardPrior
from gilib.randomness import ReplicaGenerators
from gilib.regression import WeightPosterior, regress
from gilib.statistics import (
    Statistics,
    convolutional_statistics,
    full_statistics,
    per_output_statistics,
    shared_statistics,
)
from gilib.training import Adam, DivergenceError, History, Paused, fit

__version__ = "0.1.0"

__all__ = [
    "Adam",
    "BuildContext",
    "Categorical",
    "CategoricalPrediction",
    "CheckpointError",
    "Composition",
    "Conv2d",
    "DivergenceError",
    "Draw",
    "DualWeightPosterior",
    "Factorised",
    "FactorisationError",
    "FromPrior",
    "Gaussian",
    "GaussianPrediction",
    "GlobalInducing",
    "History",
    "InducingBatchNorm",
    "Layer",
    "Likelihood",
    "Linear",
    "LocalInducing",
    "LocalReparameterisation",
    "NealPrior",
    "Network",
    "Paused",
    "PerReplica",
    "Pointwise",
    "Posterior",
    "Prior",
    "ReplicaGenerators",
    "Residual",
    "ScalePrior",
    "Sequential",
    "SpatialIWPrior",
    "StandardPrior",
    "Statistics",
    "SteppedTempering",
    "Sum",
    "WeightPosterior",
    "autocorrelation",
    "convolutional_statistics",
    "data",
    "distributions",
    "elbo",
    "fit",
    "full_statistics",
    "iwbo",
    "load",
    "metrics",
    "models",
    "per_output_statistics",
    "predict",
    "regress",
    "regress_dual",
    "save",
    "shared_statistics",
    "training",
]
