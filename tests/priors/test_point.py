"""A prior scale learned as a point, by the evidence; replicas with different priors in one program."""

import math

import pytest
import torch

import gilib
import gilib.baselines.hamiltonian
from gilib.priors import NealPrior, PerReplica
from tests.support import PRIORS, D, assert_equal, log_evidence, normals, seeded, small_net, with_ones
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


NAMES = ("scale", "neal", "standard", "scale")
R = len(NAMES)
MIXED = PerReplica(tuple(PRIORS[name] for name in NAMES))
SETS, THEIRS = normals(R, 6, 2, seed=1), normals(R, 6, 2, seed=2)
POSTERIORS = [gilib.GlobalInducing(precision="per_output"), gilib.Factorised()]


def single_noise(noise, single, joint):
    """The noise of one replica without the normals that its prior does not take, layer by layer."""
    parts, position = [], 0
    for mine, theirs in zip(single.layers, joint.layers, strict=True):
        own, theirs_own = (
            layer.hyperparameters.noise_size if layer.noise_size else 0 for layer in (mine, theirs)
        )
        parts.append(noise[..., position : position + own])
        parts.append(noise[..., position + theirs_own : position + theirs.noise_size])
        position += theirs.noise_size
    return torch.cat(parts, -1)


@pytest.mark.parametrize("posterior", POSTERIORS, ids=["gi", "fac"])
def test_bounds_and_gradients_together_and_one_by_one(posterior):
    joint, likelihood = small_net(posterior, MIXED, points=4, replicas=(R,)), gilib.Gaussian(0.2)
    noise = normals(2, R, joint.noise_size)
    bound = gilib.elbo(joint.draw(noise=noise), likelihood, SETS, THEIRS, num_data=6)
    bound.sum().backward()
    for r, name in enumerate(NAMES):
        single = small_net(posterior, PRIORS[name], points=4)
        pairs = [
            (p, joint.get_parameter(key.replace(".hyperparameters.", ".hyperparameters.members.0.")))
            for key, p in single.named_parameters()
        ]
        for own, shared in pairs:
            own.data.copy_(shared.data[r])
        drawn = single.draw(noise=single_noise(noise[:, r], single, joint))
        alone = gilib.elbo(drawn, likelihood, SETS[r], THEIRS[r], num_data=6)
        assert_equal(bound[r].detach(), alone.detach(), 1e-10)
        alone.backward()
        for own, shared in pairs:
            assert_equal(shared.grad[r], own.grad, 1e-9)


def test_what_replicas_refuse():
    with pytest.raises(TypeError, match=r"priors\[1\] must have one scale per layer, got SpatialIWPrior"):
        PerReplica((gilib.NealPrior(), gilib.SpatialIWPrior()))
    with pytest.raises(ValueError, match=r"4 priors for a network with replicas=\(4,\), this one has"):
        small_net(gilib.Factorised(), MIXED, replicas=(3,))
