"""Gaussians at inducing inputs that layers below pass on."""

import pytest
import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.linalg import ScaledIdentity
from gilib.sites import DenseWeights, InducingOutputs
from tests.support import D, assert_equal, normals, shaken

M, OUTPUTS, SAMPLES = 4, 2, 3


def built(**context):
    """A module with parameters away from their start."""
    settings = gilib.posteriors.BuildContext(num_inducing=M, dtype=D, **context)
    return shaken(gilib.posteriors.PropagatedGaussian(0.5).build(InducingOutputs(M, OUTPUTS), settings), 0.3)


def roots(samples=SAMPLES):
    """Factors R of a prior for every sample."""
    basis = normals(samples, M, M, seed=3)
    return torch.linalg.cholesky(basis @ basis.mT + torch.eye(M, dtype=D))


def draw(module, root, noise):
    prior = ScaledIdentity(torch.ones((), dtype=D), M)
    weights, log_pq = module.draw(root, prior, noise)
    return (root @ weights).detach(), log_pq.detach()


def test_outputs_are_those_of_its_own_gaussian_wherever_the_inputs_are():
    module, noise = built(), normals(SAMPLES, M * OUTPUTS, seed=4)
    one, _ = draw(module, roots(), noise)
    other, _ = draw(module, torch.eye(M, dtype=D).expand(SAMPLES, M, M), noise)
    assert_equal(one, other, 1e-12)
    z = noise.unflatten(-1, (M, OUTPUTS))
    for o in range(OUTPUTS):
        expected = module.mean[:, o] + z[..., o] @ module.root[o].tril().mT
        assert_equal(one[..., o], expected.detach(), 1e-12)


def test_log_pq_is_that_of_two_normals():
    module, root = built(), roots()
    outputs, log_pq = draw(module, root, normals(SAMPLES, M * OUTPUTS, seed=5))
    expected = torch.zeros(SAMPLES, dtype=D)
    for o in range(OUTPUTS):
        factor = module.root[o].detach().tril()
        posterior = MultivariateNormal(module.mean[:, o].detach(), factor @ factor.mT)
        prior = MultivariateNormal(torch.zeros(M, dtype=D), root @ root.mT)
        expected += prior.log_prob(outputs[..., o]) - posterior.log_prob(outputs[..., o])
    assert_equal(log_pq, expected, 1e-10)


def test_the_last_layer_starts_at_the_targets():
    x, y = normals(6, 1, seed=1), normals(6, 1, seed=2)
    net = gilib.models.deep_gp(
        1, 1, 2, posterior=gilib.posteriors.PropagatedGaussian(), inducing_points=x, pseudo_outputs=y, dtype=D
    )
    hidden, last = (module for module in net.modules() if type(module).__name__ == "PropagatedInducing")
    assert torch.equal(last.mean, y)
    assert not hidden.mean.any()


def test_where_it_does_not_belong():
    with pytest.raises(ValueError, match=r"use it in gilib\.GP"):
        gilib.posteriors.PropagatedGaussian().build(
            DenseWeights(3, 2), gilib.posteriors.BuildContext(num_inducing=M)
        )
    with pytest.raises(ValueError, match="needs inducing points"):
        gilib.models.deep_gp(1, 1, 1, posterior=gilib.posteriors.PropagatedGaussian())
