"""A free Gaussian over inducing outputs: its draws, its distribution and its divergence."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.sites import InducingOutputs
from tests.support import D, assert_equal, normals, shaken
from tests.support.processes import covariance, cubature

M, OUTPUTS = 4, 2


def built(replicas=(), shake=0.4, **settings):
    """A module over four inducing outputs of two functions; diagonals of both signs are factors too."""
    context = gilib.posteriors.BuildContext(replicas=replicas, dtype=D)
    module = shaken(gilib.FreeGaussian(**settings).build(InducingOutputs(M, OUTPUTS), context), shake)
    with torch.no_grad():
        module.root.diagonal(dim1=-2, dim2=-1)[..., 0] *= -1.0
    return module


def distribution(module):
    """The same Gaussians by torch, `[O]`; factors with positive diagonals."""
    root = module.root.detach().tril()
    covariance = root @ root.mT
    return MultivariateNormal(module.mean.detach().mT, covariance)


PRIOR = MultivariateNormal(torch.zeros(M, dtype=D), torch.eye(M, dtype=D))


def test_the_divergence_is_that_of_torch():
    module = built(initial_scale=0.7)
    assert_equal(module.kl().detach(), kl_divergence(distribution(module), PRIOR).sum(), 1e-10)


def test_draws_and_their_log_ratio():
    module, posterior = built(initial_scale=0.7), distribution(built(initial_scale=0.7))
    weights, log_pq = module.draw(None, None, normals(6, module.noise_size, seed=1))
    wanted = (PRIOR.log_prob(weights.mT) - posterior.log_prob(weights.mT)).sum(-1)
    assert_equal(log_pq.detach(), wanted.detach(), 1e-10)


def test_the_distribution_is_that_of_the_draws():
    """Over a cubature: means, covariances, and the mean of the log-ratio is minus the divergence."""
    module = built(initial_scale=0.7)
    weights, log_pq = module.draw(None, None, cubature(module.noise_size))
    mean, spread, minus_kl = module.distribution(None, None, normals(3, 0))
    assert module.distribution_size == 0 and minus_kl.shape == (3,)
    assert_equal(weights.mean(0), mean, 1e-12)
    for o in range(OUTPUTS):
        assert_equal(covariance(weights[..., o]), spread[o], 1e-12)
    assert_equal(log_pq.mean().expand(3), minus_kl, 1e-10)


def test_what_stands_above_the_diagonal_has_no_effect():
    module, noise = built(), normals(5, M * OUTPUTS, seed=1)
    weights, kl = module.draw(None, None, noise)[0], module.kl()
    with torch.no_grad():
        module.root += normals(M, M).triu(1)
    assert torch.equal(weights, module.draw(None, None, noise)[0]) and torch.equal(kl, module.kl())


@pytest.mark.parametrize(
    ("last", "scale", "start"), [(True, None, 1.0), (False, None, 0.1), (True, 0.3, 0.3)]
)
def test_where_it_starts(last, scale, start):
    spec = gilib.FreeGaussian(M, scale)
    module = spec.build(
        InducingOutputs(M, OUTPUTS), gilib.posteriors.BuildContext(dtype=D, last=last, replicas=(3,))
    )
    assert torch.equal(module.mean, torch.zeros(3, M, OUTPUTS, dtype=D))
    assert_equal(module.root.detach(), (start * torch.eye(M, dtype=D)).expand(3, OUTPUTS, M, M))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (gilib.Linear(2, 1, gilib.FreeGaussian(3)), "FreeGaussian is over the inducing outputs.*in gilib.GP"),
        (gilib.GP(2, 1, posterior=gilib.FreeGaussian()), "say how"),
    ],
)
def test_refusals(layer, message):
    with pytest.raises(ValueError, match=f"layer 0: {message}"):
        gilib.Network(None, [layer])


def test_a_factor_whose_diagonal_meets_zero_does_not_end_a_training():
    """A first step of Adam is as long as its rate: a start of that size may land on zero exactly."""
    x = normals(12, 1, seed=1)
    net = gilib.models.sparse_gp(1, 1, inducing_points=x[:4], dtype=D)
    with torch.no_grad():
        next(iter(net.layers)).weights.root[0, 1, 1] = 0.0
    history = gilib.fit(net, gilib.Gaussian(0.1), x, x.sin(), steps=3, num_samples=1, progress=False)
    assert bool(history.elbo.isfinite().all())
