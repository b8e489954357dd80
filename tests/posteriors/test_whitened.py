"""Inducing outputs u = R w: regression from features R with prior N(0, Id), against that on u itself."""

from dataclasses import dataclass

import pytest
import torch
from torch.linalg import solve_triangular

import gilib
from gilib.linalg import ScaledIdentity, SymmetricOperator
from gilib.regression.primal import prior_log_prob
from gilib.sites import InducingOutputs
from tests.kernels.cases import textbook
from tests.support import PRECISIONS, D, assert_equal, normals, shaken
from tests.support.processes import KERNEL


@dataclass(frozen=True)
class Covariance(SymmetricOperator):
    """P = K⁻¹, known by the factor of K = R Rᵀ."""

    root: torch.Tensor

    @property
    def size(self):
        return self.root.shape[-1]

    def dense(self):
        return torch.cholesky_inverse(self.root)

    def diagonal(self):
        return self.dense().diagonal(dim1=-2, dim2=-1)

    def log_det(self):
        return -2 * self.root.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def to(self, dtype):
        return Covariance(self.root.to(dtype))

    def quadratic(self, weights):
        return solve_triangular(self.root, weights, upper=False).square().sum((-2, -1))

    def sqrt_inv_matmul(self, noise):
        return self.root @ noise

    def whiten(self, features):
        return features @ self.root


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_whitened_and_unwhitened_posteriors_agree(precision, local):
    """Features R and prior N(0, Id), against Φ = Id and prior covariance K by the other system."""
    z, noise = normals(6, 2, seed=3), normals(50, 6, 2, seed=5)
    root = torch.linalg.cholesky(textbook(KERNEL, z, z))
    spec = gilib.LocalInducing(6, precision) if local else gilib.GlobalInducing(precision)
    module = shaken(spec.build(InducingOutputs(6, 2), gilib.posteriors.BuildContext(6, dtype=D)), 0.3)
    assert module.needs_inducing and module.inducing_inputs is None  # the layer has the features
    white = module.condition(root, ScaledIdentity(torch.ones((), dtype=D), 6))
    observed = module.pseudo.observed(D)
    plain = gilib.regression.regress_dual(*observed.whitened(torch.eye(6, dtype=D)), Covariance(root))
    assert_equal((root @ white.mean).detach(), plain.mean.detach(), 1e-10)
    assert_equal((root @ white.covariance @ root.mT).detach(), plain.covariance.detach(), 1e-10)
    weights, log_pq = white.draw(noise)
    u = root @ weights
    log_p = prior_log_prob(u, Covariance(root), 2)
    assert_equal(log_pq.detach(), (log_p - plain.log_prob(u)).detach(), 1e-8)
