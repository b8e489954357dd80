"""Networks of processes: draws, estimates and joint draws in depth, mean functions, replicas, bounds."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from gilib.draws import Estimate
from gilib.layers import Sum
from gilib.randomness import Noise, ReplicaGenerators
from gilib.training.gradients.objective import preferred_estimator
from tests.support import D, assert_equal, assert_mean, assert_same_mean, normals, seeded, shaken
from tests.support.processes import NETWORKS, V0, X0, deep, layer_of, process, wave

X, Y = wave(12)
LIKELIHOOD = gilib.Gaussian(0.2)
EVERY = pytest.mark.parametrize("name", NETWORKS)


def bound(drawn, x=X, y=Y, **settings):
    return gilib.elbo(drawn, LIKELIHOOD, x, y, num_data=y.shape[-2], **settings)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["global", "local", "integrated", "free"]),
    face=st.sampled_from(["draw", "estimate", "joint_draw"]),
    depth=st.integers(1, 3),
    sizes=st.tuples(*[st.integers(1, 3)] * 3, *[st.integers(1, 5)] * 2),
    replicas=st.sampled_from([(), (1,), (2,), (2, 3)]),
    one_kernel=st.booleans(),
)
def test_any_shape(name, face, depth, sizes, replicas, one_kernel):
    """Values, densities and bounds of any numbers of inputs, outputs, samples, points and inducing points."""
    inputs, outputs, samples, points, inducing = sizes
    posterior = {
        "global": gilib.GlobalInducing("full"),
        "local": gilib.LocalInducing(inducing),
        "integrated": gilib.LocalInducing(inducing, marginalise=True),
        "free": gilib.FreeGaussian(inducing),
    }[name]
    settings = {
        "inducing_points": normals(inducing, inputs, seed=1),
        "num_features": 4,
        "generator": seeded(),
    }
    kernel = gilib.kernels.RBF(1.0) if one_kernel else gilib.kernels.Matern(1.0) + gilib.kernels.DotProduct()
    settings |= {"posterior": posterior, "kernel": kernel, "replicas": replicas, "dtype": D}
    net = gilib.models.deep_gp(inputs, outputs, depth, **settings)
    x, y = normals(points, inputs, seed=2), normals(points, outputs, seed=3)
    size = (samples,) if face == "draw" else (samples, points)
    drawn = getattr(net, face)(*size, generator=seeded(1))
    assert drawn(x).shape == (samples, *replicas, points, outputs)
    assert drawn.log_pq.shape == (samples, *replicas)
    value = gilib.elbo(drawn, gilib.Gaussian(0.2), x, y, num_data=points)
    assert value.shape == replicas and bool(value.isfinite().all())
    if face == "draw":
        assert_equal(torch.cat([drawn(x[:1]), drawn(x[1:])], -2) if points > 1 else drawn(x), drawn(x), 1e-10)


@EVERY
def test_the_faces_have_one_expectation(name):
    """That of log P - log Q, and the bound's of estimates and joint draws; paths are exact to two moments."""
    net, count = NETWORKS[name](), 1500
    with torch.no_grad():
        draw, estimate = net.draw(count, generator=seeded(1)), net.estimate(count, 12, generator=seeded(2))
        joint = net.joint_draw(count, 12, generator=seeded(3))
        assert_same_mean(draw.density, estimate.density)
        assert_same_mean(draw.density, joint.density)
        assert_same_mean(bound(estimate, reduction="none"), bound(joint, reduction="none"))


@EVERY
def test_replicas_are_networks_of_their_own(name):
    together, singles = NETWORKS[name](replicas=(2,)), [NETWORKS[name]() for _ in range(2)]
    for r, single in enumerate(singles):
        for key, parameter in single.named_parameters():
            parameter.data.copy_(together.get_parameter(key).data[r])
    x, y = torch.stack([X, X + 0.3]), torch.stack([Y, Y - 0.2])
    noise, points = together.base_noise(3, seeded(1)), together.estimate_noise(3, 12, seeded(2))
    draw, estimate = together.draw(noise=noise), together.estimate(noise=points)
    bounds = bound(draw, x, y.expand(2, 12, 2)), bound(estimate, x, y)
    joint = together.joint_draw(2, 12, generator=ReplicaGenerators([5, 6]))(x)
    for r, single in enumerate(singles):
        alone = single.draw(noise=noise[:, r])
        assert_equal(draw(x)[:, r].detach(), alone(x[r]).detach(), 1e-9)
        assert_equal(bounds[0][r].detach(), bound(alone, x[r], y[r]).detach(), 1e-9)
        own = single.estimate(noise=Noise(points.draw[:, r], points.points[:, r]))
        assert_equal(bounds[1][r].detach(), bound(own, x[r], y[r]).detach(), 1e-9)
        lone = single.joint_draw(2, 12, generator=seeded(5 + r))(x[r])
        assert_equal(joint[:, r].detach(), lone.detach(), 1e-6)  # they factorise near-singular matrices


@pytest.mark.parametrize("branch", ["residual", "sum"])
def test_inducing_points_and_data_pass_through_one_mean_function(branch):
    """A data point that is an inducing point stays one, layer after layer; the network says where it went."""
    matrix = normals(2, 3, seed=3)
    if branch == "residual":
        layers = [gilib.Residual([process(2, 2, jitter=1e-12)]), process(2, 2, jitter=1e-12)]
    else:
        mean = gilib.layers.FixedLinear(2, 3, matrix)
        layers = [Sum([process(2, 3, jitter=1e-12), mean]), process(3, 2, jitter=1e-12)]
    net = gilib.Network(X0, layers, pseudo_outputs=V0, generator=seeded())
    draw = net.draw(4, generator=seeded(1))
    below = net.layers[0].draw(X0, noise=net.base_noise(4, seeded(1))[:, : layers[0].noise_size])
    through = below.inducing_outputs.detach()
    assert_equal(below(X0).detach(), through, 1e-5)
    inner = next(iter(layers[0]))
    own = inner.draw(X0, noise=net.base_noise(4, seeded(1))[:, : inner.noise_size]).inducing_outputs
    straight = X0 if branch == "residual" else X0 @ matrix
    assert_equal(through, (straight + own).detach(), 1e-12)
    assert_equal(draw(X0).detach(), draw.inducing_outputs.detach(), 1e-5)
    for drawn in (net.estimate(4, 5, generator=seeded(2)), net.joint_draw(4, 5, generator=seeded(3))):
        assert_equal(drawn(X0).detach(), drawn.inducing_outputs.detach(), 1e-3)  # roots of what is left


def test_a_layer_that_integrates_its_inducing_outputs_out_draws_below_one_that_needs_them():
    net = NETWORKS["free, then global"]()
    first, last = net.estimate(2, 12).function.functions
    assert not isinstance(getattr(first, "branch", first), type(last))
    assert preferred_estimator(net) == "pointwise"
    sizes = net.layers.noise_sizes(Estimate)
    assert sizes.points == 2  # of the last layer alone


def test_moments_add_up_in_blocks():
    """The last Gaussian of a residual block or a sum; nothing after a nonlinearity."""

    def parts(layers):
        net = gilib.Network(X0, layers, generator=seeded())
        estimate = net.estimate(3, 12, generator=seeded(1))
        known = [step.function.moments(X) for step in gilib.record(estimate, X).drawn]
        return estimate.moments(X), known, estimate(X)

    matrix = normals(2, 2, seed=3)
    fixed = gilib.layers.FixedLinear(2, 2, matrix)
    for last, straight in ((gilib.Residual([process(2, 2)]), X), (Sum([process(2, 2), fixed]), X @ matrix)):
        (mean, variance), (own,), _ = parts([last])
        assert_equal(mean.detach(), (own.mean + straight).detach(), 1e-12)
        assert_equal(variance.detach(), own.variance.detach(), 1e-12)
    (_, variance), two, _ = parts([Sum([process(2, 2), process(2, 2)])])
    assert_equal(variance.detach(), sum(own.variance for own in two).detach(), 1e-12)
    (mean, variance), _, outputs = parts([process(2, 2), torch.nn.Tanh()])
    assert variance is None and torch.equal(mean, outputs)


def test_iwbo_converges_to_the_evidence_of_one_layer():
    """Importance sampling from a shaken posterior: E exp(iwbo) is the evidence, whatever the posterior."""
    x, y = X[:3], Y[:3, :1]
    net = gilib.models.sparse_gp(2, 1, inducing_points=x + 0.1, dtype=D, jitter=1e-8, generator=seeded())
    shaken(layer_of(net).weights, 0.2)
    with torch.no_grad():
        joint = net.joint_draw(100_000, 3, generator=seeded(2))
        log_weights = LIKELIHOOD.log_prob(joint(x), y).sum(-1) + joint.density
    kernel = layer_of(net).hyperparameters().gram(x).detach() + 0.2 * torch.eye(3, dtype=D)
    truth = torch.distributions.MultivariateNormal(torch.zeros(3, dtype=D), kernel).log_prob(y[:, 0])
    assert_mean((log_weights - truth).exp(), torch.ones((), dtype=D))


@pytest.mark.parametrize("posterior", [gilib.LocalInducing(), gilib.FreeGaussian(initial_scale=0.5)])
def test_predictive_densities_are_averages_over_exact_draws(posterior):
    net, points, targets = deep(posterior, 1), normals(4, 2, seed=5), normals(4, 2, seed=6)
    prediction = gilib.predict(net, LIKELIHOOD, points, 8000, generator=seeded(1))
    with torch.no_grad():
        joint = net.joint_draw(20_000, 4, generator=seeded(2))
        densities = LIKELIHOOD.log_prob(joint(points), targets).exp()
    sd = prediction.component_sd.expand_as(prediction.means)
    components = torch.distributions.Normal(prediction.means, sd).log_prob(targets).sum(-1).exp()
    assert_equal(components.mean(0).log(), prediction.log_prob(targets), 1e-10)
    assert_same_mean(densities, components)
