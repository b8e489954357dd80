"""The synthetic problems of BALI, and what is recorded of them."""

import math

import pytest
import torch

from experiments.kurle2024 import problems, toys
from tests.experiments.recorded import JOB


def test_sinc_has_its_zeros_and_sines_their_trend():
    x = torch.tensor([math.pi / 3, math.pi, 0.5], dtype=torch.float64)
    expected = torch.tensor([0.0, 0.0, math.sin(1.5) / 1.5], dtype=torch.float64)
    assert torch.allclose(problems.sinc(x), expected, rtol=0, atol=1e-15)
    quarters = torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64)
    assert torch.allclose(problems.sines(quarters), torch.tensor([0.0, 0.55, 0.5, 1.0]).double())


@pytest.mark.parametrize(
    ("name", "function", "points", "noise"),
    [("sines", problems.sines, 32, 0.02), ("sinc", problems.sinc, 128, 0.05)],
)
def test_regressions_are_functions_with_noise(name, function, points, noise):
    """The mean square of 20 draws' residuals, N in all, within 6 of its standard errors, √(2/N) of itself."""
    squares = []
    for seed in range(20):
        problem = problems.load(name, seed)
        scale = problem.normalisation
        assert problem.x.shape == (points, 1) and len(problem.sha256) == 64
        assert problem.supported.any() and not problem.supported.all()
        x, y = scale.invert_x(problem.x.double()), scale.invert_y(problem.y.double())
        squares.append((y - function(x)).square().mean() / noise**2)
        expected = scale.invert_y(problem.true_function.double())
        assert torch.allclose(expected, function(scale.invert_x(problem.grid.double())), rtol=0, atol=1e-5)
    assert abs(float(torch.stack(squares).mean()) - 1.0) < 6.0 * math.sqrt(2.0 / (20 * points))


@pytest.mark.parametrize("name", ["sines", "moons"])
@pytest.mark.parametrize("method", ["bali", "bali_paper", "bbb"])
def test_a_record_is_what_the_figures_need(name, method):
    config = toys.ToyConfig(name, method, 3, 0.1, width=4, kl_weight=0.1, scale="smoke")
    metrics = toys.run(config, JOB)["metrics"]
    keys = ("mean", "function_sd", "sd", "truth") if name == "sines" else ("probability", "probability_sd")
    assert {len(metrics[key]) for key in keys} == {121 if name == "sines" else 441}
    assert len(metrics["y"]) == {"sines": 32, "moons": 128}[name]
    assert metrics["sd_near"] > 0.0 and metrics["sd_away"] > 0.0


def test_bali_fits_the_sines():
    """What a constant predictor leaves is 1; the noise is about 0.05 in these units."""
    config = toys.ToyConfig("sines", "bali", 60, prior_variance=100.0, width=50)
    assert toys.run(config, JOB)["metrics"]["train_rmse"] < 0.5
