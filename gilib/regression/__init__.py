"""The engine: Bayesian linear regression, statistics in, posterior out.

`regress` takes sufficient statistics and solves a system of the number of weights; `regress_dual` takes few
pseudo-observations and solves a system of their number. `averaged` is the same posterior with unknown
noise, averaged over minibatches.
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
