import math

import numpy as np
import pytest
import torch

from experiments.examples import CO2_SHA256, load_co2, toy
from gilib.data import sha256_of


def test_inputs_are_uniform_on_both_intervals():
    n = 200_000
    x = toy(num_points=n).x_raw
    assert bool(((x.abs() >= 2) & (x.abs() <= 4)).all())
    # Uniform on [2, 4]: mean 3, variance 1/3, fourth central moment 1/5 * (width / 2)^4 = 1/5.
    right_share, folded = (x > 0).double().mean(), x.abs()
    assert abs(right_share - 0.5) < 6 * math.sqrt(0.25 / n)
    assert abs(folded.mean() - 3) < 6 * math.sqrt(1 / 3 / n)
    assert abs(folded.var() - 1 / 3) < 6 * math.sqrt((1 / 5 - 1 / 9) / n)
    # Within each interval the position is independent of the side.
    correlation = ((folded - 3) * x.sign()).mean()
    assert abs(correlation) < 6 * math.sqrt(1 / 3 / n)


def test_outputs_are_the_cube_plus_gaussian_noise():
    n, noise_sd = 200_000, 0.5
    problem = toy(seed=3, num_points=n, noise_sd=noise_sd)
    noise = (problem.y_raw - problem.x_raw**3) / noise_sd
    assert abs(noise.mean()) < 6 / math.sqrt(n)
    assert abs(noise.var() - 1) < 6 * math.sqrt(2 / n)
    assert abs((noise**4).mean() - 3) < 6 * math.sqrt(96 / n)  # Var z^4 = 105 - 9
    assert abs((noise * problem.x_raw).mean()) < 6 * math.sqrt((9 + 1 / 3) / n)


def test_normalised_by_default_with_the_noise_in_the_same_units_or_as_drawn():
    problem = toy(dtype=torch.float64)
    assert problem.x.shape == problem.y.shape == (40, 1)
    torch.testing.assert_close(problem.y, (problem.y_raw - problem.y_raw.mean()) / problem.y_raw.std())
    torch.testing.assert_close(problem.x, (problem.x_raw - problem.x_raw.mean()) / problem.x_raw.std())
    assert problem.noise_variance == pytest.approx(9.0 / float(problem.y_raw.var()), rel=1e-12)
    problem = toy(normalise=False, dtype=torch.float64)
    assert torch.equal(problem.x, problem.x_raw) and torch.equal(problem.y, problem.y_raw)
    assert problem.noise_variance == 9.0 and problem.normalisation.log_density_shift == 0.0


def test_balanced_puts_half_in_each_interval_left_first():
    x = toy(num_points=100, balanced=True).x_raw
    assert bool((x[:50] < -2).all()) and bool((x[:50] >= -4).all())
    assert bool((x[50:] >= 2).all()) and bool((x[50:] < 4).all())


def test_seed_fixes_the_data_and_no_global_state_is_touched():
    first = toy(seed=5)
    assert (first.x.dtype, first.x_raw.dtype) == (torch.float32, torch.float64)
    torch.manual_seed(99)
    np.random.seed(99)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    second = toy(seed=5)
    assert torch.equal(first.y, second.y) and first.sha256 == second.sha256 == sha256_of(
        first.x_raw, first.y_raw
    )
    assert torch.equal(before[0], torch.get_rng_state()) and np.array_equal(
        before[1], np.random.get_state()[1]
    )
    assert toy(seed=6).sha256 != first.sha256


def test_seed_zero_is_the_same_draw_on_every_machine():
    # Recorded results name the seed: a change of the generator or of the order of drawing must not go unseen.
    problem = toy(seed=0)
    assert problem.x_raw[:2, 0].tolist() == pytest.approx([3.8802120072262123, 2.831279457599152], abs=1e-9)
    assert problem.y_raw[:2, 0].tolist() == pytest.approx([60.811677498727306, 23.330934588580774], abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_points": 1}, ValueError, "num_points must be at least 2"),
        ({"num_points": 4.0}, ValueError, "num_points must be an integer"),
        ({"num_points": 41, "balanced": True}, ValueError, "pass an even number, got 41"),
        ({"noise_sd": 0.0}, ValueError, "noise_sd must be a positive finite number, got 0.0"),
        ({"dtype": torch.int64}, TypeError, "dtype must be a floating-point type"),
    ],
)
def test_bad_input_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        toy(**arguments)


def test_months_are_in_order_and_five_are_missing():
    data = load_co2()
    months = (data.x[:, 0] * 12.0 - 0.5).round().long()
    assert torch.allclose(data.x[:, 0], (months.double() + 0.5) / 12.0, rtol=0.0, atol=1e-9)
    wanted = torch.arange(1958 * 12 + 2, 2002 * 12)  # March 1958 to December 2001
    assert bool((months.diff() > 0).all()) and len(wanted) - len(months) == 5
    assert set(months.tolist()) < set(wanted.tolist())
    assert months[0] == wanted[0] and months[-1] == wanted[-1]
    assert data.licence == "public domain" and "Keeling" in data.source and 315 < data.y[0] < 317
    assert data.sha256 == sha256_of(data.x, data.y) == CO2_SHA256
