"""Two-layer Gaussian processes on their own data: the data, starts, grid, and what is measured."""

import math

import numpy as np
import pytest
import torch

import gilib
from experiments.ober2021 import dgp_toy, dgp_toy_measures
from experiments.ober2021.dgp_toy import DgpToyConfig, build, composed, run
from experiments.ober2021.dgp_toy_measures import correlation, functions
from gilib.draws import record
from tests.experiments.recorded import JOB
from tests.support import assert_equal, assert_mean, normals, seeded


def config(method="gi", **settings):
    settings = {"num_inducing": 6, "steps": 4, "num_samples": 2, "samples": 20} | settings
    return DgpToyConfig(method, 0, **settings)


def test_the_data_are_two_functions_of_the_prior_and_noise():
    """Products of values at two points have the kernel's mean, of both functions; the noise its variance."""
    hidden, outputs, squares = [], [], []
    for draw in range(400):
        problem = composed(draw)
        (x, other), (h, g), (y, z) = (part[:2, 0] for part in (problem.x, problem.hidden, problem.y))
        hidden.append(h * g - torch.exp(-0.5 * (x - other).square()))
        outputs.append(y * z - torch.exp(-0.5 * (h - g).square()))
        squares.append(y.square())
    assert_mean(torch.stack(hidden), 0.0)
    assert_mean(torch.stack(outputs), 0.0)
    assert_mean(torch.stack(squares), dgp_toy.VARIANCE + dgp_toy.NOISE_VARIANCE)


def test_targets_are_noisy_functions_of_the_hidden_values():
    """Neighbours in the hidden value differ by noise: half their squared difference has its variance."""
    found = []
    for draw in range(50):
        problem = composed(draw)
        order = problem.hidden[:, 0].argsort()
        close = problem.hidden[order].diff(dim=0).abs() < 0.01
        found.append((problem.y[order].diff(dim=0)[close].square() / 2).mean())
    assert_mean(torch.stack(found), dgp_toy.NOISE_VARIANCE)


def test_global_inducing_starts_at_training_points_with_their_targets():
    problem = composed(0)
    net, _ = build(config("gi"), problem)
    rows = (net.inducing_points == problem.x[:, 0].float()).double().argmax(-1)
    assert_equal(net.inducing_points, problem.x[rows].float())
    first, last = net.layers
    assert_equal(last.weights.pseudo.outputs, problem.y[rows].float())
    assert (first.weights.pseudo.log_precision == -4).all() and (last.weights.pseudo.log_precision == 0).all()


@pytest.mark.parametrize("mean", ["zero", "identity"])
@pytest.mark.parametrize("method", dgp_toy.METHODS)
def test_a_network_is_two_processes_of_width_one(method, mean):
    net, _ = build(config(method, mean=mean), composed(0))
    layers = [module for module in net.modules() if isinstance(module, gilib.GP)]
    sizes = [(layer.in_features, layer.out_features, layer.num_inducing) for layer in layers]
    assert sizes == [(1, 1, 6)] * 2
    x = torch.full((1, 1), 1e4)  # so far out that only the mean function is left, and prior
    mean_there = net.draw(400, generator=seeded())(x).mean()
    assert (mean_there > 9e3) == (mean == "identity")


@pytest.mark.parametrize("learn", [True, False])
def test_kernels_and_noise_are_learned_only_if_asked(learn):
    metrics = run(config(learn=learn), JOB)["metrics"]
    known = [1.0] * 4 + [pytest.approx(dgp_toy.NOISE_VARIANCE)]
    found = [*metrics["lengthscales"], *metrics["kernel_variances"], metrics["noise_variance"]]
    assert (found == known) != learn


def test_correlations_against_numpy():
    first, second = normals(50, 3, 1), normals(50, 4, 1, seed=1)
    second[:, 0] -= 2 * first[:, 1]
    expected = np.corrcoef(first[..., 0].T, second[..., 0].T)[:3, 3:]
    assert_equal(correlation(first, second), torch.tensor(expected), 1e-12)


def test_only_global_inducing_couples_layers():
    """Independent layers correlate by chance, 0.04 in the mean of four hundred draws; at most twice that."""
    found = {}
    for method in dgp_toy.METHODS:
        net, _ = build(config(method), composed(0))
        for name, parameter in list(net.layers)[1].named_parameters():
            if name.endswith("scaled_log_precision"):
                parameter.data.fill_(2.0)
        with torch.no_grad():
            draws = [net.draw(100, generator=seeded(seed)) for seed in range(4)]
            found[method] = functions(draws, composed(0).x[:20].float())["layer_correlation"]
    chance = math.sqrt(2 / (math.pi * 400))
    assert found["li"] < 2 * chance and found["dsvi"] < 2 * chance and found["gi"] > 2 * chance


@pytest.mark.parametrize("mean", ["zero", "identity"])
@torch.no_grad()
def test_recorded_functions_are_those_of_the_draw(mean):
    """The first, then the second at its outputs, is the composition; deviations are over the draws."""
    net, _ = build(config("li", mean=mean), composed(0))
    draws, x = [net.draw(20, generator=seeded(seed)) for seed in (0, 1)], composed(0).x.float()
    found, grid = functions(draws, x), dgp_toy_measures.GRID

    def at(points):
        """Outputs of the layers alone, what enters the second, and the composition."""
        steps = [record(draw.function, points).steps for draw in draws]
        outputs = [torch.cat([each[k].output for each in steps]) for k in (0, 1)]
        return *outputs, torch.cat([each[1].input for each in steps]), torch.cat([d(points) for d in draws])

    first, _, _, whole = at(grid)
    between = torch.tensor(found["layer_2"]["grid"])[:, None]
    second = torch.cat([record(draw.function, x).steps[1].function(between) for draw in draws])
    for name, values in {"layer_1": first, "layer_2": second, "composition": whole}.items():
        assert found[name]["mean"] == pytest.approx(values.mean(0).flatten().tolist(), abs=1e-3)
        assert found[name]["sd"] == pytest.approx(values.std(0).flatten().tolist(), abs=1e-3)
        assert found[name]["paths"][1] == pytest.approx(values[1].flatten().tolist(), abs=2e-3)
    *outputs, entering, _ = at(x)
    assert_equal(entering, outputs[0] + (x if mean == "identity" else 0), 1e-5)
    ends = np.quantile(entering.numpy(), (0.005, 0.995)).tolist()
    assert [found["layer_2"]["grid"][k] for k in (0, -1)] == pytest.approx(ends, abs=1e-3)
    assert found["layer_variances"] == pytest.approx([float(o.var(0).mean()) for o in outputs], rel=1e-4)


def test_the_bound_in_pieces_is_that_of_all_draws(monkeypatch):
    """Pieces of bounds log 1 and log 3 have the bound log 2."""
    asked = []

    def bound(draw, likelihood, x, y):
        asked.append(draw.density.numel())
        return torch.tensor(math.log((1.0, 3.0)[len(asked) - 1]))

    monkeypatch.setattr(gilib, "iwbo", bound)
    net, likelihood = build(config(), composed(0))
    data = composed(0).x.float(), composed(0).y.float()
    with torch.no_grad():
        found = dgp_toy_measures._iwbo(net, likelihood, data, 200, seeded())
    assert_equal(found, torch.tensor(math.log(2.0), dtype=torch.float64), 1e-7)
    assert asked == [100, 100]
