"""Distributions in the style of `torch.distributions`, whose draws are functions of standard normals."""

from gilib.distributions.gamma import gamma_from_normal, log_gamma_from_normal
from gilib.distributions.matrix_normal import MatrixNormal
from gilib.distributions.matrix_normal_wishart import MatrixNormalInverseWishart
from gilib.distributions.wishart import InverseWishart, Wishart

__all__ = [
    "InverseWishart",
    "MatrixNormal",
    "MatrixNormalInverseWishart",
    "Wishart",
    "gamma_from_normal",
    "log_gamma_from_normal",
]
