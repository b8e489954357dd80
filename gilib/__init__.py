"""gilib: structured posteriors for Bayesian neural networks and deep Gaussian processes.

A layer draws a function: `draw = net.draw(10)` is ten functions, `draw(x)` evaluates them, `draw.log_pq` is
log P - log Q of what was drawn.
"""

from gilib import data, distributions, kernels, metrics, models, structured, training
from gilib.convolution import autocorrelation
from gilib.correlated import CorrelatedGaussian, CorrelatedPrediction
from gilib.drawables import Drawable, Ensemble, Samples
from gilib.draws import Composition, Draw, Estimate, JointDraw, record
from gilib.dual_regression import DualWeightPosterior, regress_dual
from gilib.layers import (
    GP,
    Conv2d,
    FixedLinear,
    InducingBatchNorm,
    Layer,
    Linear,
    Pointwise,
    Residual,
    Sequential,
    Sum,
)
from gilib.likelihoods import Categorical, Gaussian, Likelihood
from gilib.linalg import FactorisationError
from gilib.mixtures import CategoricalPrediction, GaussianPrediction, Prediction
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
    "BuildContext",
    "Categorical",
    "CategoricalPrediction",
    "CheckpointError",
    "Composition",
    "Conjugate",
    "Conv2d",
    "DeepProcessRecipe",
    "DivergenceError",
    "Draw",
    "Drawable",
    "Dropout",
    "DualWeightPosterior",
    "CorrelatedGaussian",
    "CorrelatedPrediction",
    "Ensemble",
    "Estimate",
    "Factorised",
    "FactorisationError",
    "FixedLinear",
    "FreeGaussian",
    "FromPrior",
    "Gaussian",
    "GaussianPrediction",
    "GlobalInducing",
    "History",
    "InducingBatchNorm",
    "JointDraw",
    "Layer",
    "Likelihood",
    "Linear",
    "LocalInducing",
    "MatrixGaussian",
    "Model",
    "NealPrior",
    "Network",
    "NetworkRecipe",
    "Noise",
    "Paused",
    "PerOutputGaussian",
    "PerReplica",
    "PointEstimate",
    "Pointwise",
    "Posterior",
    "PosteriorModule",
    "Prediction",
    "Prior",
    "PriorModule",
    "ProcessRecipe",
    "PropagatedGaussian",
    "Recipe",
    "ReplicaGenerators",
    "Residual",
    "Samples",
    "ScalePrior",
    "Sequential",
    "SpatialIWPrior",
    "StandardPrior",
    "Statistics",
    "SteppedTempering",
    "StudentPrediction",
    "Sum",
    "Trained",
    "WeightPosterior",
    "autocorrelation",
    "bound",
    "convolutional_statistics",
    "data",
    "distributions",
    "elbo",
    "fit",
    "full_statistics",
    "iwbo",
    "kernels",
    "load",
    "metrics",
    "models",
    "per_output_statistics",
    "predict",
    "predict_student",
    "recommended",
    "record",
    "regress",
    "regress_dual",
    "save",
    "shared_statistics",
    "structured",
    "training",
]
