"""Prediction: whatever draws functions gives a predictive distribution.

What draws: a network, an `Ensemble` of its replicas, `Samples` of a chain. What is predicted: a mixture
with one component for each function that was drawn.
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
