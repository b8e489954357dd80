"""The deep linear experiment: its data, its summary of them, its grid, and what it records."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

import gilib
from experiments.ober2021 import depth
from experiments.ober2021.depth import METHODS, NOISE_VARIANCE, POINTS, DepthConfig, linear_problem, summarise
from gilib.linalg import ScaledIdentity
from tests.experiments.recorded import JOB
from tests.support import D, assert_equal, assert_mean, log_evidence, normals

LIKELIHOOD = gilib.Gaussian(NOISE_VARIANCE)


def summary(problem):
    """Its summary with a replica axis, `[1, 6, 5]` and `[1, 6, 1]`, float64."""
    return [part[None] for part in summarise(problem.x, problem.y)]


def test_the_data_are_a_noisy_linear_function():
    """Moments over thirty draws of the data: inputs, noise around the least-squares fit, true weights."""
    noise, weights = [], []
    for seed in range(30):
        problem = linear_problem(seed)
        assert problem.x.shape == (1000, 5) and problem.test_x.shape == (100, 5)
        assert_mean(problem.x, 0.0)
        assert_mean(problem.x.square(), 1.0)
        fit = torch.linalg.lstsq(problem.x, problem.y).solution
        noise.append((problem.y - problem.x @ fit).square().sum() / (1000 - 5))
        weights.append(fit[:, 0])
        assert (problem.test_y - problem.test_x @ fit).square().mean() < 2 * NOISE_VARIANCE
    assert_mean(torch.stack(noise), 0.1)
    assert_mean(torch.stack(weights).square(), 1 / 5 + 0.1 / (1000 - 5 - 1))
    assert torch.equal(linear_problem(3).y, linear_problem(3).y)
    assert not torch.equal(linear_problem(3).y, linear_problem(4).y)


def test_a_summary_has_the_squared_errors_of_all_points():
    problem, candidates = linear_problem(0), normals(5, 7)
    x, y = summarise(problem.x, problem.y)
    assert x.shape == (6, 5) and y.shape == (6, 1)
    assert_equal((y - x @ candidates).square().sum(0), (problem.y - problem.x @ candidates).square().sum(0))
    noise = torch.tensor(math.sqrt(NOISE_VARIANCE), dtype=D)
    for beta in candidates.mT[:, :, None]:
        full = Normal(problem.x @ beta, noise).log_prob(problem.y).sum()
        assert_equal(Normal(x @ beta, noise).log_prob(y).sum() + depth.left_out(1000), full)


@pytest.mark.parametrize("method", METHODS)
def test_a_summary_has_the_elbo_of_all_points(method):
    """The same draws, scored on all points and on the summary."""
    problem = linear_problem(1)
    net = depth.build([DepthConfig(method, 4, 3)], [problem]).double()
    draw = net.draw(7)
    full = gilib.elbo(draw, LIKELIHOOD, problem.x, problem.y, num_data=POINTS, reduction="none")
    short = gilib.elbo(draw, LIKELIHOOD, *summary(problem), num_data=6, reduction="none")
    assert_equal(depth.per_point(short.detach()), full.detach() / POINTS, 1e-10)


def test_evidence_of_the_generating_model():
    problem = linear_problem(2)
    covariance = problem.x @ problem.x.mT / 5 + 0.1 * torch.eye(POINTS, dtype=D)
    marginal = MultivariateNormal(torch.zeros(POINTS, dtype=D), covariance)
    assert_equal(torch.tensor(problem.log_evidence), marginal.log_prob(problem.y[:, 0]), 1e-8)


def optimal(net, x, y):
    """Inducing points that are the summary, and a last layer as precise as the data: it is then exact."""
    with torch.no_grad():
        net.inducing_points.copy_(x)
        last = list(net.layers)[-1].weights
        last.pseudo.outputs.copy_(y)
        start = -math.log(NOISE_VARIANCE) / last.pseudo.log_precision_scale
        last.pseudo.scaled_log_precision.fill_(start)


@pytest.mark.parametrize("width", [3, 40])
def test_six_inducing_points_serve_an_optimal_last_layer_at_any_depth(width):
    """rand→gi: every draw's bound is the log evidence of the features that its lower layers make."""
    problem = linear_problem(0)
    net = depth.build([DepthConfig("rand_gi", width, 4, num_inducing=6)], [problem]).double()
    x, y = summary(problem)
    optimal(net, x, y)
    draw = net.draw(8)
    bounds = gilib.elbo(draw, LIKELIHOOD, x, y, num_data=6, reduction="none")[:, 0]
    features = gilib.record(draw.function, problem.x).outputs[-2][:, 0]
    truth = log_evidence(features, problem.y, 1 / width, NOISE_VARIANCE)
    assert_equal(bounds.detach() + depth.left_out(POINTS), truth, 1e-8)
    assert truth.std() > 0.1


def test_the_networks_are_linear_and_start_as_the_paper_says():
    problem = linear_problem(0)
    net = depth.build([DepthConfig("gi", 7, 3)], [problem])
    layers = list(net.layers)
    sizes = [(layer.in_features, layer.out_features) for layer in layers]
    assert sizes == [(5, 7), (7, 7), (7, 1)] and not any(layer.bias for layer in layers)
    assert torch.equal(net.inducing_points[0], problem.x[:10].float())
    assert torch.equal(layers[-1].weights.pseudo.outputs[0], problem.y[:10].float())
    for layer, size, start in zip(layers, (5, 7, 7), (-4.0, -4.0, 0.0), strict=True):
        precision, _ = layer.hyperparameters.draw(torch.empty(1, 0))
        assert isinstance(precision, ScaledIdentity) and precision.scale == size
        assert_equal(layer.weights.pseudo.log_precision.detach(), torch.full((1, 10), start), 1e-6)
    draw, (one, other) = net.draw(3), torch.randn(2, 4, 5)
    assert_equal((draw(one) + 2 * draw(other)).detach(), draw(one + 2 * other).detach(), 1e-4)


def test_seeds_train_together():
    cells = {replace(c, seed=0): depth.group_key(c) for c in depth.figure_2("reduced")}
    assert len(set(cells.values())) == len(cells) == 3 * (3 + 5 * 6)


def test_curves_have_the_units_of_the_elbo():
    """At a learning rate of almost nothing the curve scatters around the ELBO that is measured."""
    config = DepthConfig("gi", 5, 2, steps=50, lr=1e-9, elbo_samples=2000)
    (record,) = depth.run([config], JOB)
    curve = torch.tensor(record["curve"])
    error = math.hypot(record["metrics"]["elbo_stderr"], float(curve.std()) / math.sqrt(50))
    assert abs(float(curve.mean()) - record["metrics"]["elbo"]) < 6 * error


def test_the_elbo_is_measured_in_batches(monkeypatch):
    problem = linear_problem(0)
    net = depth.build([DepthConfig("gi", 5, 2)], [problem])
    monkeypatch.setattr("experiments.ober2021.depth.DRAWN_AT_ONCE", 4 * net.noise_size)
    bounds = depth.measure_elbo(net, LIKELIHOOD, *(part.float() for part in summary(problem)), 11, [0])
    assert bounds.shape == (11, 1) and len(bounds.unique()) == 11


def test_test_log_likelihood_averages_densities():
    """The depth-one posterior is known: with many draws the mixture is its predictive distribution."""
    problem = linear_problem(0)
    net = depth.build([DepthConfig("gi", 5, 1, num_inducing=6)], [problem]).double()
    optimal(net, *summary(problem))
    precision = 5 * torch.eye(5, dtype=D) + problem.x.mT @ problem.x / NOISE_VARIANCE
    mean = torch.linalg.solve(precision, problem.x.mT @ problem.y / NOISE_VARIANCE)
    spread = (problem.test_x @ torch.linalg.inv(precision) * problem.test_x).sum(-1, keepdim=True)
    truth = Normal(problem.test_x @ mean, (spread + NOISE_VARIANCE).sqrt()).log_prob(problem.test_y).mean()
    found = depth.measure_test(net, LIKELIHOOD, problem.test_x[None], problem.test_y[None], 2000, [0])
    assert abs(found[0] - truth) < 1e-3
