"""Predictive distributions of networks, of an `Ensemble` of replicas, or of `Samples` of a chain."""

from gilib.likelihoods.mixtures import (
    CategoricalPrediction,
    CorrelatedPrediction,
    EnsemblePrediction,
    GaussianPrediction,
    MixturePrediction,
    Prediction,
    StudentPrediction,
)
from gilib.prediction.drawables import Drawable, Ensemble, Samples
from gilib.prediction.predicting import predict
from gilib.prediction.student import predict_student

__all__ = [
    "CategoricalPrediction",
    "CorrelatedPrediction",
    "Drawable",
    "Ensemble",
    "EnsemblePrediction",
    "GaussianPrediction",
    "MixturePrediction",
    "Prediction",
    "Samples",
    "StudentPrediction",
    "predict",
    "predict_student",
]
