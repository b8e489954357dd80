"""Natural gradients: one step to the optimum of a sparse Gaussian process."""

import math

import pytest
import torch

import gilib
from gilib.linalg import FactorisationError
from gilib.training import NaturalGradient
from gilib.training.rules.natural import natural_step
from tests.support import D, assert_equal, normals, seeded
from tests.support import sparse as support
from tests.support.sparse import X, Y, sparse, titsias

NOISE = 0.1


def frozen(net):
    """Only q is trained."""
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("weights" in name)
    return net


def bound(net):
    likelihood = gilib.Gaussian(NOISE)
    return gilib.elbo(net.estimate(1, 30, generator=seeded()), likelihood, X, Y, num_data=30).detach()


def train(net, rule, steps, **settings):
    return support.train(net, gilib.Gaussian(NOISE), steps=steps, rule=rule, **settings)


@pytest.mark.parametrize("size", [1.0, 0.03])
def test_one_whole_step_ends_at_the_optimum(size):
    """From the prior, and from a Gaussian that is much narrower than the optimum."""
    net = frozen(sparse())
    with torch.no_grad():
        next(iter(net.layers)).weights.root.mul_(size)
    train(net, NaturalGradient(1.0), 1)
    assert_equal(bound(net), titsias(net, [NOISE]).detach(), 1e-9)
    train(net, NaturalGradient(1.0), 1)  # and stays there
    assert_equal(bound(net), titsias(net, [NOISE]).detach(), 1e-9)


def test_the_step_is_the_natural_parameters_of_the_expectation_gradient():
    """θ - γ ∂loss/∂η, by autograd through η = (m, S + mmᵀ)."""
    mean, root = normals(4, 2, seed=5), normals(2, 4, 4, seed=6).tril()
    root.diagonal(dim1=-2, dim2=-1).abs_().add_(0.5)
    target = normals(2, 4, 4, seed=7)
    target = target @ target.mT

    def loss(mean, covariance):
        return (target * covariance).sum() + (covariance @ mean.mT[..., None]).square().sum()

    eta1, eta2 = mean.mT.clone(), (root @ root.mT + mean.mT[..., None] * mean.mT[..., None, :])
    eta1.requires_grad_(), eta2.requires_grad_()
    covariance = eta2 - eta1[..., None] * eta1[..., None, :]
    g1, g2 = torch.autograd.grad(loss(eta1.mT, 0.5 * (covariance + covariance.mT)), (eta1, eta2))
    rate, precision = 0.01, torch.linalg.inv(root @ root.mT)
    new_precision = precision + 2 * rate * g2
    new_shift = (precision @ mean.mT[..., None])[..., 0] - rate * g1
    leaves = mean.clone().requires_grad_(), root.clone().requires_grad_()
    d_mean, d_root = torch.autograd.grad(loss(leaves[0], leaves[1] @ leaves[1].mT), leaves)
    moved, factor = natural_step(mean, root, d_mean, d_root, rate, 0.5)
    assert_equal(factor @ factor.mT, torch.linalg.inv(new_precision), 1e-10)
    assert_equal(moved.mT, torch.linalg.solve(new_precision, new_shift), 1e-10)


def test_a_step_that_is_too_long_keeps_a_precision():
    """Two Gaussians: one loses 0.49 of a direction's precision, the other 0.51, and 40 times another's."""
    rotation = torch.linalg.qr(normals(3, 3, seed=8)).Q
    changes = torch.tensor([[-0.49, 0.3, 0.0], [-0.51, -40.0, 7.0]], dtype=D)  # eigenvalues of A
    root = normals(2, 3, 3, seed=9).tril()
    root.diagonal(dim1=-2, dim2=-1).abs_().add_(0.5)
    back = torch.linalg.inv(root)
    whitened = rotation @ torch.diag_embed(changes) @ rotation.mT
    slope = 0.5 * back.mT @ whitened @ back  # of the loss with respect to S, at γ = 1
    mean, d_mean = normals(3, 2, seed=10), normals(3, 2, seed=11)
    moved, factor = natural_step(mean, root, d_mean, (2.0 * slope @ root).tril(), 1.0, 0.5)
    kept = torch.stack([1.0 + changes[0], 1.0 + changes[1] + 0.5 * changes[1].square()])
    assert bool((kept >= 0.5).all())
    covariance = root @ rotation @ torch.diag_embed(1.0 / kept) @ rotation.mT @ root.mT
    assert_equal(factor @ factor.mT, covariance, 1e-10)
    assert_equal(moved.mT, mean.mT - (covariance @ d_mean.mT[..., None])[..., 0], 1e-10)


def test_a_step_that_is_not_a_number_says_so():
    eye = torch.eye(3, dtype=D)[None]
    with pytest.raises(FactorisationError, match="lower its learning rate"):
        natural_step(torch.zeros(3, 1, dtype=D), eye, torch.zeros(3, 1, dtype=D), math.nan * eye, 1.0, 0.5)


def test_networks_without_free_gaussians():
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.Factorised(), dtype=D)
    with pytest.raises(ValueError, match=r"use gilib\.Adam"):
        train(net, NaturalGradient(), 1)
