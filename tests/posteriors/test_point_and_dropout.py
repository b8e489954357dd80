"""Point estimates and dropout: posteriors of other noise than one number for each weight."""

import pytest
import torch

import gilib
from gilib.convolution import Windows
from gilib.linalg import KroneckerIdentity, ScaledIdentity
from gilib.posteriors import BuildContext, Dropout, PointEstimate
from gilib.randomness import Noise
from gilib.sites import ConvolutionWeights, DenseWeights
from tests.kernels.cases import textbook
from tests.support import D, assert_equal, normals
from tests.support.oracles import assert_mean_within, normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
KERNEL = gilib.kernels.RBF(lengthscale=(0.8, 1.3), variance=1.7)
CHANNELS, PIXELS, OUTPUTS, RATE = 3, 4, 2, 0.3
DENSE = DenseWeights(CHANNELS + 1, OUTPUTS, bias=True)
KERNELS = ConvolutionWeights(CHANNELS, OUTPUTS, windows=Windows.of(2, padding=0), image_size=(4, 3))
SITES = pytest.mark.parametrize("site", [DENSE, KERNELS], ids=["dense", "convolution"])


def context(generator, replicas=()):
    return BuildContext(replicas=replicas, generator=generator)


def prior_of(site, generator):
    """A precision in which the weights of one channel are dependent, those of several are not."""
    if site.kernel_pixels == 1:
        return ScaledIdentity(torch.tensor(1.7), site.fan_in)
    return KroneckerIdentity(positive_definite(generator, PIXELS, PIXELS), CHANNELS)


def log_prior(weights, prior):
    """Σ_o log N(w_o; 0, P⁻¹) by torch, `[S]`."""
    distribution = torch.distributions.MultivariateNormal(
        torch.zeros(prior.size), precision_matrix=prior.dense()
    )
    return distribution.log_prob(weights.mT).sum(-1)


@SITES
def test_a_point_takes_no_noise_and_costs_its_prior(site, generator):
    module, prior = PointEstimate().build(site, context(generator)), prior_of(site, generator)
    assert module.noise_size == 0 and not module.needs_inducing
    weights, log_pq = module.draw(None, prior, torch.empty(5, 0))
    assert weights.shape == (5, site.fan_in, OUTPUTS) and log_pq.shape == (5,)
    point = module.scaled_weights / site.fan_in**0.5
    torch.testing.assert_close(weights, point.expand(5, -1, -1))
    torch.testing.assert_close(log_pq, log_prior(point, prior).expand(5))


def test_the_objective_of_a_process_is_the_best_joint_density():
    """Σ_n log N(y_n; aᵀw, σ²) - (k - |a|²) / 2σ² + log N(w; 0, Id), whatever the noise."""
    x, z, y, variance, jitter = normals(9, 2, seed=1), normals(4, 2, seed=2), normals(9, 1, seed=3), 0.3, 1e-5
    net = gilib.models.deep_gp(
        2, 1, 1, posterior=PointEstimate(), inducing_points=z, dtype=D, kernel=KERNEL, jitter=jitter
    )
    w = next(iter(net.layers)).weights.scaled_weights
    assert not w.any()
    w.data = normals(4, 1, seed=4)
    nugget = jitter * KERNEL.variance * torch.eye(4, dtype=D)
    root = torch.linalg.cholesky(textbook(KERNEL, z, z) + nugget)
    white = torch.linalg.solve_triangular(root, textbook(KERNEL, z, x), upper=False)
    left = KERNEL.variance - white.square().sum(0)
    expected = torch.distributions.Normal(white.mT @ w, variance**0.5).log_prob(y).sum()
    expected = expected - 0.5 * left.sum() / variance + torch.distributions.Normal(0.0, 1.0).log_prob(w).sum()
    bound = gilib.elbo(net.estimate(3, 9), gilib.Gaussian(variance), x, y, num_data=9)
    assert_equal(bound.detach(), expected.detach(), 1e-9)


def test_points_of_processes_are_as_many_as_said():
    net = gilib.models.deep_gp(2, 1, 1, posterior=PointEstimate(num_inducing=6), dtype=D)
    assert next(iter(net.layers)).num_inducing == 6
    with pytest.raises(ValueError, match=r"say how many inducing inputs the layer has: PointEstimate\("):
        gilib.models.deep_gp(2, 1, 1, posterior=PointEstimate())
    with pytest.raises(ValueError, match=r"weights has no inducing points: write PointEstimate\(\)"):
        gilib.models.mlp(2, (), 1, posterior=PointEstimate(num_inducing=6))


@SITES
def test_coins_fall_with_their_rate_for_whole_channels(site, generator):
    module = Dropout(RATE).build(site, context(generator))
    assert module.noise_size == CHANNELS
    weights, _ = module.draw(None, prior_of(site, generator), normal(generator, 20_000, CHANNELS))
    kept = (weights / module.mean_if_kept).detach()
    assert bool(((kept == 0) | (kept == 1)).all())
    rows = kept[..., 0].mT  # [I, S]
    if site.bias:
        assert bool((rows[-1] == 1).all())
        rows = rows[:-1]
    by_channel = rows.reshape(CHANNELS, -1, 20_000)
    assert torch.equal(by_channel, by_channel[:, :1].expand_as(by_channel))
    assert_mean_within(by_channel[:, 0].mT, 1.0 - RATE)
    assert_mean_within(by_channel[0, 0] * by_channel[1, 0], (1.0 - RATE) ** 2)


@SITES
def test_the_divergence_is_the_mean_log_prior_of_draws(site, generator):
    module, prior = Dropout(RATE).build(site, context(generator)), prior_of(site, generator)
    weights, log_pq = module.draw(None, prior, normal(generator, 20_000, CHANNELS))
    _, estimated = module.estimate(
        None, prior, Noise(torch.empty(7, 0), normal(generator, 7, 2, CHANNELS)), lambda w: w
    )
    assert torch.equal(log_pq[:7], estimated) and bool((log_pq == log_pq[0]).all())
    assert_mean_within(log_prior(weights, prior).detach(), log_pq[0].detach())


def layer_at(site):
    if site.kernel_pixels == 1:
        return gilib.Linear(CHANNELS, OUTPUTS, Dropout(RATE)), (CHANNELS,)
    return gilib.Conv2d(CHANNELS, OUTPUTS, 2, Dropout(RATE), padding=0), (CHANNELS, 4, 3)


@SITES
@pytest.mark.parametrize("replicas", [(), (2,)])
def test_an_estimate_is_a_draw_for_every_point(site, replicas, generator):
    """The same coins for a point and for a function: the same output at that point."""
    layer, shape = layer_at(site)
    layer.build(shape, context(generator, replicas))
    x, noise = normal(generator, 6, *shape), layer.estimate_noise(5, 6, generator)
    assert noise.draw.shape == (5, *replicas, 0) and noise.points.shape == (5, *replicas, 6, CHANNELS)
    outputs = layer.estimate(noise=noise)(x)
    for n in range(6):
        wanted = layer.draw(noise=noise.points[..., n, :])(x[n : n + 1])
        assert_equal(outputs.narrow(1 + len(replicas), n, 1).detach(), wanted.detach(), 1e-12)


def test_nothing_is_dropped_at_rate_zero(generator):
    module = Dropout(0.0).build(DENSE, context(generator))
    weights, log_pq = module.draw(None, prior_of(DENSE, generator), normal(generator, 50, CHANNELS))
    torch.testing.assert_close(weights, module.mean_if_kept.expand(50, -1, -1))
    torch.testing.assert_close(log_pq, log_prior(module.mean_if_kept, prior_of(DENSE, generator)).expand(50))
