"""Bayesian linear regression, from sufficient statistics to the posterior.

`regress` solves a system as large as the number of inputs, `regress_dual` one as large as the number of
pseudo-observations. `averaged` updates the posterior with unknown noise by averages over minibatches.
"""

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
