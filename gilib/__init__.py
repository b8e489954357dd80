"""gilib: structured posteriors for Bayesian neural networks and deep Gaussian processes.

A layer draws a function: `draw = net.draw(10)` is ten functions, `draw(x)` evaluates them, `draw.log_pq` is
log P - log Q of what was drawn.

The names that a user types first are here. All others are in their rooms: `gilib.posteriors.Conjugate`,
`gilib.layers.Layer`, `gilib.training.SGHMC`.
"""

from gilib import (
    convolution,
    data,
    distributions,
    draws,
    kernels,
    layers,
    likelihoods,
    linalg,
    metrics,
    models,
    objectives,
    persistence,
    posteriors,
    prediction,
    priors,
    randomness,
    recipes,
    regression,
    statistics,
    structured,
    training,
)
from gilib.draws import Draw, record
from gilib.layers import GP, Conv2d, Linear, Pretrained, Residual, Sequential, Sum
from gilib.likelihoods import Categorical, Gaussian
from gilib.models import bayesian
from gilib.network import Network
from gilib.objectives import elbo, iwbo
from gilib.persistence import load, save
from gilib.posteriors import Factorised, FreeGaussian, FromPrior, GlobalInducing, LocalInducing, PointEstimate
from gilib.prediction import Ensemble, predict
from gilib.priors import NealPrior, ScalePrior, SpatialIWPrior, StandardPrior
from gilib.recipes import recommended
from gilib.training import Adam, fit

__version__ = "0.2.0"

__all__ = [
    "GP",
    "Adam",
    "Categorical",
    "Conv2d",
    "Draw",
    "Ensemble",
    "Factorised",
    "FreeGaussian",
    "FromPrior",
    "Gaussian",
    "GlobalInducing",
    "Linear",
    "LocalInducing",
    "NealPrior",
    "Network",
    "PointEstimate",
    "Pretrained",
    "Residual",
    "ScalePrior",
    "Sequential",
    "SpatialIWPrior",
    "StandardPrior",
    "Sum",
    "bayesian",
    "elbo",
    "fit",
    "iwbo",
    "load",
    "predict",
    "recommended",
    "record",
    "save",
    # rooms
    "convolution",
    "data",
    "distributions",
    "draws",
    "kernels",
    "layers",
    "likelihoods",
    "linalg",
    "metrics",
    "models",
    "objectives",
    "persistence",
    "posteriors",
    "prediction",
    "priors",
    "randomness",
    "recipes",
    "regression",
    "statistics",
    "structured",
    "training",
]
