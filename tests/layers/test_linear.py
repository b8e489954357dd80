"""The dense layer: what it draws, from which inducing points, with which noise."""

import pytest
import torch
from torch.distributions import Gamma, InverseGamma, Normal

import gilib
from gilib import Linear
from gilib.posteriors import BuildContext
from tests.support import POSTERIORS, PRIORS, D, assert_equal, assert_mean, normals, seeded, shaken, with_ones


def built(posterior, prior=None, bias=True, replicas=(), points=5, last=False):
    layer = Linear(2, 3, posterior, prior, bias)
    context = BuildContext(points, replicas, None, last, seeded(), D)
    assert layer.build((2,), context) == (3,)
    return shaken(layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", POSTERIORS)
def test_a_draw_is_a_matrix_product(name, bias):
    layer = built(POSTERIORS[name], bias=bias)
    function, log_pq = layer.draw(normals(5, 2), 4, generator=seeded())
    x = normals(6, 2, seed=1)
    assert function.weights.shape == (4, 2 + bias, 3) and log_pq.shape == (4,)
    assert_equal(function(x), ((with_ones(x) if bias else x) @ function.weights).detach())


@pytest.mark.parametrize(
    ("kind", "prior"), [("shared", "spatial"), ("per_output", "scale"), ("full", "neal")]
)
def test_inducing_points_with_and_without_leading_axes(kind, prior):
    """[M, D], [S, M, D] and [S, R, M, D] give what a loop over samples and replicas gives."""
    posterior = gilib.GlobalInducing(precision=kind)
    one = built(posterior, PRIORS[prior])
    several = built(posterior, PRIORS[prior], replicas=(2,))
    noise, u = normals(4, 2, one.noise_size), normals(4, 2, 5, 2, seed=1)
    with torch.no_grad():
        for name, parameter in several.named_parameters():
            parameter.copy_(one.get_parameter(name).expand_as(parameter))
    drawn = several.draw(u, noise=noise)
    assert drawn.log_pq.shape == (4, 2)
    for r in range(2):
        batch = one.draw(u[:, r], noise=noise[:, r])
        assert_equal(drawn.function.weights[:, r], batch.function.weights.detach(), 1e-10)
        assert_equal(drawn.log_pq[:, r], batch.log_pq.detach(), 1e-10)
        for s in range(4):
            single = one.draw(u[s, r], noise=noise[s : s + 1, r])
            assert_equal(batch.function.weights[s], single.function.weights[0].detach(), 1e-10)
            assert_equal(batch.log_pq[s], single.log_pq[0].detach(), 1e-10)


@pytest.mark.parametrize(("name", "variance"), [("neal", 1.3**2 / 3), ("standard", 1.0)])
def test_draws_from_the_prior_have_its_variance(name, variance):
    layer = built(gilib.FromPrior(), PRIORS[name])
    weights = layer.draw(num_samples=3000, generator=seeded()).function.weights
    assert_mean(weights, 0.0)
    assert_mean(weights.square(), variance)


def test_factorised_weights_and_their_score():
    layer = built(gilib.Factorised(), gilib.NealPrior(scale=2.0))
    function, log_pq = layer.draw(num_samples=3000, generator=seeded())
    p = layer.weights
    mean, sd = (p.scaled_mean / 3**0.5).detach(), (0.5 * p.log_variance).exp().detach()
    weights = function.weights.detach()
    assert_mean(weights, mean)
    assert_mean((weights - mean).square(), sd.square())
    prior = Normal(torch.zeros(1, dtype=D), torch.tensor([2.0], dtype=D) / 3**0.5)
    expected = (prior.log_prob(weights) - Normal(mean, sd).log_prob(weights)).sum((-2, -1))
    assert_equal(log_pq.detach(), expected, 1e-10)


def learned_scale(name):
    """A layer of weights drawn given its scale; P and Q of that scale by torch.distributions."""
    layer = built(gilib.FromPrior(), PRIORS[name])
    values = {key: p.detach().flatten()[0] for key, p in layer.hyperparameters.named_parameters()}
    if name == "scale":
        q = Gamma(2.5 + values["log_alpha"].exp(), 1.7 + values["log_beta"].exp())
        return layer, Gamma(torch.tensor(2.5, dtype=D), torch.tensor(1.7, dtype=D)), q
    nu = values["log_nu"].exp()  # IW(Ψ, ν) of one number is InverseGamma(ν/2, Ψ/2)
    q = InverseGamma((2.0 + nu) / 2, (2.0 + nu * values["psi_factor"] ** 2) / 2)
    return layer, InverseGamma(torch.ones((), dtype=D), torch.ones((), dtype=D)), q


@pytest.mark.parametrize("name", ["scale", "spatial"])
def test_a_learned_scale_is_drawn_and_scored(name):
    """The scale is read off the weights: w = z / √(I s); its log P - log Q is all there is to log_pq."""
    layer, p, q = learned_scale(name)
    noise = layer.base_noise(4000, seeded(3))
    draw = layer.draw(noise=noise)
    scale = ((noise[:, 1] / draw.function.weights[:, 0, 0]) ** 2 / 3).detach()
    assert_equal(draw.log_pq.detach(), p.log_prob(scale) - q.log_prob(scale), 1e-8)
    rising = q if name == "scale" else Gamma(q.concentration, q.rate)  # torch has no cdf of the inverse
    assert_mean(rising.cdf(scale if name == "scale" else 1 / scale), 0.5)


def test_learned_scales_have_an_extra_normal_each():
    sizes = {name: built(gilib.GlobalInducing(), prior).noise_size for name, prior in PRIORS.items()}
    assert sizes == {"neal": 9, "standard": 9, "scale": 10, "spatial": 10}


def test_local_points_do_not_see_the_layer_below():
    layer = built(gilib.LocalInducing(num_inducing=7))
    assert not layer.needs_inducing and layer.weights.inducing_inputs.shape == (7, 2)
    noise = layer.base_noise(2, seeded())
    a, b = layer.draw(normals(5, 2), noise=noise), layer.draw(noise=noise)
    assert torch.equal(a.function.weights, b.function.weights)


@pytest.mark.parametrize("u", [normals(4, 2), normals(1, 2), normals(5, 3), normals(2, 4, 2)])
def test_inducing_points_that_do_not_fit_are_never_accepted(u):
    """A layer built for five points refuses four, or one, which would broadcast."""
    layer = built(gilib.GlobalInducing())
    with pytest.raises((ValueError, RuntimeError)):
        layer.draw(u, 2, generator=seeded())


def test_a_layer_outside_a_network_says_that_it_is_not_built():
    with pytest.raises((RuntimeError, ValueError), match="build"):
        Linear(2, 3).draw(normals(5, 2))
