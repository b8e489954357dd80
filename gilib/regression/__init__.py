"""Bayesian linear regression, from sufficient statistics to the posterior.

`regress` takes sufficient statistics and solves a system as large as the number of inputs; `regress_dual`
takes few pseudo-observations and solves a system as large as their number. `averaged` updates the posterior
with unknown noise by moving averages over minibatches.
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
