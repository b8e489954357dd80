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
from gilib.layers import GP, Conv2d, Linear, Residual, Sequential, Sum
from gilib.likelihoods import Categorical, Gaussian
from gilib.network import Network
from gilib.objectives import SteppedTempering, elbo, iwbo
from gilib.output_noise import PerOutputGaussian
from gilib.persistence import CheckpointError, Model, load, save
from gilib.posteriors import (
    BuildContext,
    Conjugate,
    Dropout,
    Factorised,
    FreeGaussian,
    FromPrior,
    GlobalInducing,
    LocalInducing,
    MatrixGaussian,
    PointEstimate,
    Posterior,
    PosteriorModule,
    PropagatedGaussian,
)
from gilib.prediction import predict
from gilib.priors import NealPrior, PerReplica, Prior, PriorModule, ScalePrior, SpatialIWPrior, StandardPrior
from gilib.randomness import Noise, ReplicaGenerators
from gilib.recipes import DeepProcessRecipe, NetworkRecipe, ProcessRecipe, Recipe, Trained, bound, recommended
from gilib.regression import WeightPosterior, regress
from gilib.statistics import (
    Statistics,
    convolutional_statistics,
    full_statistics,
    per_output_statistics,
    shared_statistics,
)
from gilib.student import StudentPrediction, predict_student
from gilib.training import Adam, DivergenceError, History, Paused, fit

__version__ = "0.1.0"

__all__ = [
    "GP",
    "Adam",
    "Categorical",
    "Conv2d",
    "DeepProcessRecipe",
    "DivergenceError",
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
    "Residual",
    "ScalePrior",
    "Sequential",
    "SpatialIWPrior",
    "StandardPrior",
    "Sum",
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
