"""A prior scale learned as a point: its optimum is that of the evidence, where that is known."""

import math

import pytest
import torch

import gilib
import gilib.baselines.hamiltonian
from gilib.priors import NealPrior
from tests.support import D, assert_equal, log_evidence, normals, seeded, small_net, with_ones
from tests.support.oracles import prior_module, site

NOISE = 0.07
X = normals(9, 2, seed=1)
Y = normals(9, 2, seed=2) + 3 * X.square()
LEARNED = NealPrior(learn=True)
FAN_IN = 3  # two inputs and the bias


def slope(log_scale):
    """The derivative of the log evidence of Bayesian linear regression under N(0, c²/I)."""
    at = torch.tensor(log_scale, dtype=D, requires_grad=True)
    evidence = log_evidence(with_ones(X), Y, (2 * at).exp() / FAN_IN, NOISE)
    return float(torch.autograd.grad(evidence, at)[0])


def exact_net(start):
    """Inducing points at the data, pseudo-outputs as noisy as they: every draw's bound is the evidence."""
    posterior, prior = gilib.GlobalInducing(log_precision=-math.log(NOISE)), NealPrior(start, learn=True)
    settings = {"inducing_points": X, "pseudo_outputs": Y}
    return gilib.models.mlp(2, (), 2, posterior=posterior, prior=prior, **settings)


def layer(net, k):
    return list(net.layers)[k]


@pytest.mark.parametrize("start", [0.3, 1.0, 5.0])
def test_the_bounds_gradient_is_the_evidences(start):
    """On both sides of the maximum."""
    net = exact_net(start)
    bound = gilib.elbo(net.draw(3, generator=seeded(3)), gilib.Gaussian(NOISE), X, Y, num_data=len(X))
    (found,) = torch.autograd.grad(bound.sum(), layer(net, 0).hyperparameters.log_scale)
    assert float(found) == pytest.approx(slope(math.log(start)), rel=1e-9)


def test_it_shares_a_program_with_other_priors():
    mixed = gilib.priors.PerReplica((NealPrior(2.0), LEARNED, gilib.ScalePrior()))
    net = small_net(gilib.Factorised(), mixed, replicas=(3,))
    module = layer(net, 0).hyperparameters
    module.members[1].log_scale.data.copy_(torch.tensor([5.0, math.log(3.0), 5.0], dtype=D))
    precision, _ = module.draw(torch.zeros(2, 3, module.noise_size, dtype=D))
    assert_equal(
        precision.scale[:, :2].detach(), FAN_IN / torch.tensor([4.0, 9.0], dtype=D).expand(2, 2), 1e-12
    )
    used = torch.autograd.grad(precision.scale.sum(), module.members[1].log_scale)[0]
    assert (used != 0).tolist() == [False, True, False]


def test_what_is_refused():
    with pytest.raises(RuntimeError, match="Missing key.*log_scale"):
        LEARNED.build(site(2), torch.zeros(())).load_state_dict(prior_module(NealPrior(), 2).state_dict())
    with pytest.raises(TypeError, match=r"needs fixed prior variances .* got NealPrior\(learn=True\)"):
        gilib.baselines.hamiltonian.prior_scales((2, 1), LEARNED)
