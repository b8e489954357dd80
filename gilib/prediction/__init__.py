"""Predictive distributions of networks, of an `Ensemble` of replicas, or of `Samples` of a chain.

A prediction is a mixture with one component for each drawn function.
"""

from gilib.likelihoods.correlated import CorrelatedPrediction
from gilib.likelihoods.mixtures import (
    CategoricalPrediction,
    GaussianPrediction,
    MixturePrediction,
    Prediction,
)
from gilib.prediction.drawables import Drawable, Ensemble, Samples
from gilib.prediction.predicting import predict
from gilib.prediction.student import StudentPrediction, predict_student

__all__ = [
    "CategoricalPrediction",
    "CorrelatedPrediction",
    "Drawable",
    "Ensemble",
    "GaussianPrediction",
    "MixturePrediction",
    "Prediction",
    "Samples",
    "StudentPrediction",
    "predict",
    "predict_student",
]
