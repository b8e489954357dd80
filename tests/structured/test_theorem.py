"""Structured deep GPs against the oracle: Theorem 1, special cases, gradients, natural ones too."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from gilib import projection
from gilib.draws import JointDraw
from gilib.models import sparse_gp, structured_gp
from gilib.randomness import Noise, NoiseSize
from gilib.structured import FullyCoupled, MeanField
from gilib.training import NaturalGradient
from gilib.training.rules.natural import natural_step
from tests.structured import oracle
from tests.structured.reading import DEEP, FAMILIES, layer_of, network, oracle_of
from tests.structured.test_pattern import Chain
from tests.support import assert_equal, normals, seeded, shaken

X = normals(6, 2, seed=41)
NOISE = 0.3


def assert_as_the_oracle(net, x, replica=(), tolerance=1e-8):
    """From the same noise of an estimate: outputs, moments and the divergence."""
    noise = net.estimate_noise(3, x.shape[-2], seeded(1))
    own = (slice(None), *replica)
    with torch.no_grad():
        drawn, model = net.estimate(noise=noise), oracle_of(net, replica)
        wanted = (oracle.sample_point(model, x, noise.points[own])[-1],)
        wanted += (*oracle.last_moments(model, x, noise.points[own]), oracle.kl(model).expand(3))
        for ours, theirs in zip((drawn(x), *drawn.marginals(x), -drawn.log_pq), wanted, strict=True):
            assert_equal(ours[own], theirs, tolerance)


@pytest.mark.parametrize("large", [0, 2**62], ids=["one by one", "at once"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_and_its_gradient(family, large, monkeypatch):
    """By autograd of the oracle, for every parameter."""
    monkeypatch.setattr(projection, "MIN_PRODUCTS", large)
    net, y = network(family), normals(6, 1, seed=42)
    noise = net.estimate_noise(2, 6, seeded(3))
    ours = gilib.elbo(net.estimate(noise=noise), gilib.Gaussian(NOISE), X, y, num_data=6, reduction="none")
    theirs = oracle.elbo_gaussian(oracle_of(net), X, y, NOISE, noise.points)
    assert_equal(ours.detach(), theirs.detach(), 1e-8)
    parameters = dict(net.named_parameters())
    found = torch.autograd.grad(ours.sum(), list(parameters.values()))
    wanted = torch.autograd.grad(theirs.sum(), list(parameters.values()))
    for key, a, b in zip(parameters, found, wanted, strict=True):
        assert bool((b != 0).any()), key
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6 * float(b.abs().max()), msg=key)


@pytest.mark.parametrize("width", [2, 3])
def test_the_model_of_a_mean_field_is_the_deep_gp_of_free_gaussians(width):
    """Mean functions, where inducing inputs start, kernels; both factors start at 0.3."""
    z = normals(7, 3, seed=48)
    common = {"width": width, "inducing_points": z, "generator": seeded()}
    net = gilib.models.structured_gp(3, 1, 3, family=MeanField(0.3), **common)
    other = gilib.models.deep_gp(3, 1, 3, posterior=gilib.FreeGaussian(initial_scale=0.3), **common)
    x, noise = normals(6, 3, seed=49), net.estimate_noise(3, 6, seeded(1))
    with torch.no_grad():
        a, b = net.estimate(noise=noise), other.estimate(noise=noise)
        assert_equal(a(x), b(x), 1e-9)
        assert_equal(a.log_pq, b.log_pq, 1e-9)


@pytest.mark.parametrize("shape", [DEEP, ((1, 3, 2, 2), (2, 3, 2, 4))])
def test_a_family_of_the_readers_own(shape):
    assert_as_the_oracle(network(Chain(), shape), X)


@pytest.mark.parametrize("family", FAMILIES)
def test_replicas_are_models_of_their_own(family):
    net = network(family, replicas=(2,))
    for r in range(2):
        assert_as_the_oracle(net, X, (r,))


@given(st.data(), st.sampled_from(sorted(FAMILIES)), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_all_architectures(data, family, depth, inputs):
    """Depths, widths, and numbers of inducing inputs, different in every layer."""
    hidden = data.draw(st.tuples(*[st.integers(1, 3)] * (depth - 1)))
    outputs = data.draw(st.integers(1, 2))
    if family == "stripes_and_arrow":
        hidden, outputs = hidden[:1] * (depth - 1), 1
    sizes = data.draw(st.tuples(*[st.integers(1, 5)] * depth))
    net = network(family, ((*hidden, outputs), sizes), inputs=inputs, seed=data.draw(st.integers(0, 999)))
    assert_as_the_oracle(net, normals(2, inputs, seed=44), tolerance=1e-7)


@pytest.mark.parametrize("family", FAMILIES)
def test_log_pq_of_a_draw(family):
    """Log P(w) - log Q(w) of w = m + C z: the normals that are drawn once begin with z."""
    net = network(family, num_features=8)
    layer, model = layer_of(net), oracle_of(net)
    size = len(model.mean)
    assert layer.noise_sizes(JointDraw) == NoiseSize(size, 5)
    z = normals(4, size, seed=50)
    with torch.no_grad():
        u = model.mean + z @ torch.linalg.cholesky(model.covariance).mT
        prior = torch.distributions.MultivariateNormal(torch.zeros_like(model.mean), model.prior())
        dist = torch.distributions.MultivariateNormal(model.mean, model.covariance)
        wanted = prior.log_prob(u) - dist.log_prob(u)
        joint = layer.joint_draw(noise=Noise(z, normals(4, 2, 5, seed=51)))
        assert_equal(joint.log_pq, wanted, 1e-9)
        rest = normals(4, layer.noise_size - size, seed=52)
        assert_equal(layer.draw(noise=torch.cat([z, rest], -1)).log_pq, wanted, 1e-9)


INPUTS = normals(20, 2, seed=1)
TARGETS = torch.sin(2 * INPUTS).sum(1, keepdim=True) + 0.1 * normals(20, 1, seed=2)


def train(net, rule, y=TARGETS):
    return gilib.fit(net, gilib.Gaussian(0.1), INPUTS, y, steps=1, rule=rule, num_samples=2, progress=False)


@pytest.mark.parametrize("family", [MeanField(), FullyCoupled()])
def test_two_outputs_land_on_their_posteriors(family):
    """The joint Gaussian of both, whose covariance between them is zero."""
    ours = structured_gp(2, 2, 1, family=family, inducing_points=INPUTS[::4], jitter=0.0)
    theirs = sparse_gp(2, 2, inducing_points=INPUTS[::4], jitter=0.0)
    shaken(ours, 0.1)
    (process,) = ours.layers[0]
    theirs.layers[0].hyperparameters.load_state_dict(process.hyperparameters.state_dict())
    theirs.layers[0].inducing_inputs.data.copy_(process.inducing_inputs)
    for net in (ours, theirs):
        for name, parameter in net.named_parameters():
            parameter.requires_grad_("weights" in name)
        train(net, NaturalGradient(1.0), y=torch.cat([TARGETS, TARGETS.cos()], 1))
    joint, free = ours.layers[0].weights, theirs.layers[0].weights
    assert_equal(joint.means[0].detach(), free.mean.detach(), 1e-9)
    factors = [root for _, root in joint.dense(joint.gaussian_parameters)]
    parts = [root.tril() @ root.tril().mT for root in factors]
    found = torch.block_diag(*(part for each in parts for part in each.flatten(0, -3)))
    wanted = torch.block_diag(*(root.tril() @ root.tril().mT for root in free.root))
    assert_equal(found.detach(), wanted.detach(), 1e-9)


def test_a_gaussian_that_is_frozen_in_part():
    net = structured_gp(2, 1, 2, width=2, family=FullyCoupled(), inducing_points=INPUTS[::5])
    net.layers[0].weights.means[1].requires_grad_(False)
    message = r"natural gradients move means and factors together, but .*weights.means.1 is frozen: let it"
    with pytest.raises(ValueError, match=message):
        train(net, NaturalGradient(0.1))


class Loss(torch.nn.Module):
    """Minus the bound of all points, as a module that functional_call takes."""

    def __init__(self, net, noise):
        super().__init__()
        self.net, self.noise = net, noise

    def forward(self):
        estimate = self.net.estimate(noise=self.noise)
        return -20 * gilib.elbo(estimate, gilib.Gaussian(0.1), INPUTS, TARGETS, num_data=20)


@pytest.mark.parametrize("family", [MeanField(), FullyCoupled()])
def test_a_step_is_one_in_the_natural_parameters(family):
    """Of θ = (S⁻¹m, -½S⁻¹) along the gradient with respect to η = (m, S + mmᵀ), by autograd."""
    net = shaken(structured_gp(2, 1, 2, width=2, family=family, inducing_points=INPUTS[::5]), 0.3)
    joint, rate = net.layers[0].weights, 1e-3
    loss = Loss(net, net.estimate_noise(2, 20, seeded(3)))
    parameters = joint.gaussian_parameters
    names = [key for p in parameters for key, value in loss.named_parameters() if value is p]
    gaussians = [(m[:, 0].detach(), r[0].tril().detach()) for m, r in joint.dense(parameters)]
    expectations = [(m, r @ r.mT + m[:, None] * m) for m, r in gaussians]
    expectations = [tuple(value.requires_grad_() for value in pair) for pair in expectations]

    values = joint.undense(
        [(m[:, None], torch.linalg.cholesky(second - m[:, None] * m)[None]) for m, second in expectations]
    )
    along = torch.autograd.grad(
        torch.func.functional_call(loss, dict(zip(names, values, strict=True)), ()),
        [value for pair in expectations for value in pair],
    )
    slopes = joint.dense(torch.autograd.grad(loss(), parameters))
    for k, ((m, r), slope) in enumerate(zip(gaussians, slopes, strict=True)):
        moved, factor = natural_step(m[:, None], r[None], *slope, rate, 0.5)
        precision = torch.linalg.inv(r @ r.mT)
        after = torch.linalg.inv(factor[0] @ factor[0].mT)
        assert_equal(-0.5 * after, -0.5 * precision - rate * along[2 * k + 1], 1e-7)
        assert_equal(after @ moved[:, 0], precision @ m - rate * along[2 * k], 1e-7)
