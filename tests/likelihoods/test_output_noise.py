"""Noise per output: sums of one-output Gaussians, and of one output the same as `Gaussian`."""

import torch
from torch.distributions import Normal

import gilib
from tests.support import D, assert_equal, normals, small_net

F, Y = normals(4, 6, 2, seed=1), normals(6, 2, seed=2)
VARIANCES = [0.3, 2.0]


def test_log_prob_by_torch_distributions():
    found = gilib.likelihoods.PerOutputGaussian(VARIANCES).log_prob(F, Y)
    assert_equal(found, Normal(F, torch.tensor(VARIANCES, dtype=D).sqrt()).log_prob(Y).sum(-1))


def test_gaussian_outputs_are_integrated():
    """Σ_o E log N(y_o; f_o, σ_o²) over f ~ N(m, v): of a quadratic the mean over m ± √v is exact."""
    net = small_net(gilib.Factorised(), hidden=())
    likelihood = gilib.likelihoods.PerOutputGaussian(VARIANCES)
    process = gilib.models.sparse_gp(2, 2, inducing_points=normals(4, 2), dtype=D)
    x = normals(6, 2, seed=3)
    functions = process.estimate(1, 6)
    mean, variance = functions.moments(x)
    two_points = [likelihood.log_prob(mean + sign * variance.sqrt(), Y) for sign in (1, -1)]
    assert_equal(likelihood.expected_log_prob(functions, x, Y), sum(two_points) / 2)
    draw = net.draw(3)
    assert_equal(likelihood.expected_log_prob(draw, x, Y), likelihood.log_prob(draw(x), Y))


def test_variances_of_outputs_are_added():
    variance = normals(4, 6, 2).square()
    wide = gilib.likelihoods.PerOutputGaussian(VARIANCES).predictive(F, variance=variance)
    assert_equal(wide.component_sd.square(), variance + torch.tensor(VARIANCES, dtype=D))


def test_it_is_learned_for_every_output_and_replica(tmp_path):
    net = small_net(gilib.GlobalInducing(), replicas=(3,))
    likelihood = gilib.likelihoods.PerOutputGaussian(VARIANCES, learn=True, replicas=(3,))
    gilib.fit(net, likelihood, normals(8, 2), normals(8, 2), steps=3, progress=False)
    start = torch.tensor(VARIANCES, dtype=D).log()
    assert likelihood.log_variance.shape == (3, 2) and (likelihood.log_variance != start).all()
    gilib.save(tmp_path / "model", net, likelihood)
    again = gilib.load(tmp_path / "model").likelihood
    assert torch.equal(again.log_variance, likelihood.log_variance)
    assert not gilib.likelihoods.PerOutputGaussian(VARIANCES).log_variance.requires_grad
