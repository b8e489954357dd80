"""Cholesky factorisations that explain their failures, and structured symmetric operators."""

from gilib.linalg.factor import FactorisationError, cholesky, failures_as_nan, inverse_cholesky, readable
from gilib.linalg.operators import KroneckerIdentity, ScaledIdentity, SymmetricOperator
from gilib.linalg.triangular import cholesky_and_inverse

__all__ = [
    "FactorisationError",
    "KroneckerIdentity",
    "ScaledIdentity",
    "SymmetricOperator",
    "cholesky",
    "cholesky_and_inverse",
    "failures_as_nan",
    "inverse_cholesky",
    "readable",
]
