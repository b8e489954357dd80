"""Bayesian linear regression, from sufficient statistics to the posterior."""

from gilib.regression.dual import DualWeightPosterior, regress_dual
from gilib.regression.joint import JointState, Residuals, averaged, residuals
from gilib.regression.primal import WeightPosterior, regress

__all__ = [
    "DualWeightPosterior",
    "JointState",
    "Residuals",
    "WeightPosterior",
    "averaged",
    "regress",
    "regress_dual",
    "residuals",
]
