import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib.data import Normalisation


def some_data(n=20, d=3, o=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 5.0 + 3.0 * torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = -2.0 + 0.1 * torch.randn(n, o, generator=generator, dtype=torch.float64)
    return x, y


@settings(max_examples=10, deadline=None)
@given(n=st.integers(2, 12), d=st.integers(1, 4), o=st.integers(1, 3), seed=st.integers(0, 1000))
def test_round_trip_and_unit_moments(n, d, o, seed):
    x, y = some_data(n, d, o, seed)
    normalisation = Normalisation.fit(x, y)
    torch.testing.assert_close(normalisation.invert_x(normalisation.x(x)), x, rtol=1e-12, atol=0)
    torch.testing.assert_close(normalisation.invert_y(normalisation.y(y)), y, rtol=1e-12, atol=0)
    torch.testing.assert_close(normalisation.y(y).mean(0), torch.zeros(o).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(normalisation.y(y).std(0), torch.ones(o).double(), rtol=1e-9, atol=0)


def test_constant_columns_are_divided_by_one_and_become_exactly_zero():
    x, y = some_data(1001)
    x[:, 1] = 0.998  # a mean over these is not 0.998 to the last bit
    normalisation = Normalisation.fit(x, y)
    assert normalisation.x_std[1] == 1.0
    assert torch.equal(normalisation.x(x)[:, 1], torch.zeros(1001).double())
    assert float(normalisation.x(torch.full((1, 3), 1.998).double())[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_that_are_constant_but_for_rounding(dtype):
    """Shares add up to one, or nearly: what is left is no deviation to divide by."""
    shares = torch.rand(200, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    total = (shares / shares.sum(1, keepdim=True)).sum(1, keepdim=True)
    assert total.min() < total.max()
    normalisation = Normalisation.fit(torch.cat([shares, total, 1000.0 * total], 1))
    assert normalisation.x_std[3:].tolist() == [1.0, 1.0]
    near = 1.0 + 1e-3 * torch.linspace(-1, 1, 200, dtype=dtype)[:, None]
    assert float(Normalisation.fit(near).x_std) == pytest.approx(float(near.double().std()), rel=1e-6)


def test_statistics_of_single_precision_are_taken_in_double():
    times = torch.arange(1000.0)[:, None] * 128.0 + 1e8
    found = Normalisation.fit(times)
    assert float(found.x_std) == pytest.approx(float(times.double().std()), rel=1e-6)
    assert found.x_std.dtype == torch.float32


def test_one_row_has_deviation_one(recwarn):
    normalisation = Normalisation.fit(torch.tensor([[3.0]]), torch.tensor([[4.0]]))
    assert normalisation.y_std.item() == 1.0 and normalisation.y_mean.item() == 4.0
    assert not recwarn.list


def test_density_and_deviation_of_a_gaussian_change_units_together():
    x, y = some_data()
    normalisation = Normalisation.fit(x, y)
    mean, sd = torch.tensor([0.3, -0.2]).double(), torch.tensor([0.5, 1.5]).double()
    in_normalised = torch.distributions.Normal(mean, sd).log_prob(normalisation.y(y)).sum(-1)
    original = torch.distributions.Normal(normalisation.invert_y(mean), normalisation.scale_y(sd))
    expected = original.log_prob(y).sum(-1)  # [N]
    torch.testing.assert_close(in_normalised + normalisation.log_density_shift, expected, rtol=1e-12, atol=0)
    assert normalisation.log_density_shift == pytest.approx(-math.log(float(normalisation.y_std.prod())))


@pytest.mark.parametrize("leading", [(), (2, 3, 4)])
def test_methods_keep_dtype_and_leading_axes(leading, dtype=torch.float32):
    normalisation = Normalisation.fit(*some_data())
    for method, columns in (("x", 3), ("invert_x", 3), ("y", 2), ("invert_y", 2), ("scale_y", 2)):
        result = getattr(normalisation, method)(torch.ones(*leading, columns, dtype=dtype))
        assert result.shape == (*leading, columns) and result.dtype == dtype


def test_state_survives_a_file(tmp_path):
    normalisation = Normalisation.fit(*some_data()).to(torch.float32)
    assert {value.dtype for value in normalisation.state().values()} == {torch.float32}
    torch.save(normalisation.state(), tmp_path / "state.pt")
    back = Normalisation(**torch.load(tmp_path / "state.pt", weights_only=True))
    for name, value in normalisation.state().items():
        assert torch.equal(value, back.state()[name])


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Normalisation.fit(torch.ones(3), torch.ones(3, 1)), ValueError, r"x must be \[N, columns\]"),
        (lambda: Normalisation.fit(torch.ones(3, 1), torch.ones(2, 1)), ValueError, "equally many rows"),
        (lambda: Normalisation.fit(torch.ones(1, 1), ONE[:, None] * torch.nan), ValueError, "y holds NaN"),
        (lambda: Normalisation(ONE, 0 * ONE, ONE, ONE), ValueError, "x_std must be finite and positive"),
        (lambda: Normalisation(ONE, ONE, ONE, torch.ones(2)), ValueError, "y_mean and y_std .* 1 and 2"),
        (lambda: Normalisation.identity(3, 1).x(torch.ones(4, 2)), ValueError, r"x must have 3 columns"),
        (lambda: Normalisation(ONE, ONE, ONE, ONE, 0 * ONE), ValueError, "y_stretch must be finite and pos"),
        (lambda: Normalisation.fit(torch.ones(2, 1), weights=ONE), ValueError, r"weights must be \[2\]"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_row_that_counts_is_a_row_that_is_repeated():
    x, counts = torch.randn(20, 3, dtype=torch.float64), torch.arange(20) % 4 + 1
    found = Normalisation.fit(x, x[:, :1], weights=counts.double())
    again = x.repeat_interleave(counts, 0)
    truth = Normalisation.fit(again, again[:, :1])
    for value, expected in zip(found.state().values(), truth.state().values(), strict=True):
        torch.testing.assert_close(value, expected)


def test_inputs_alone_leave_targets_as_they_are():
    x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, 2)
    alone, both = Normalisation.fit(x), Normalisation.fit(x, y.double())
    assert torch.equal(alone.x(x), both.x(x))
    assert alone.inputs_alone and not both.inputs_alone and alone.log_density_shift == 0.0
    assert alone.y(y) is y and alone.invert_y(y) is y and alone.scale_y(y) is y


def test_arrays_become_arrays(dtype=np.float32):
    """Of the values and the dtype that tensors become; whole numbers in float64."""
    x, y = some_data()
    found = Normalisation.fit(x, y)
    for name, values in (("x", x), ("invert_x", x), ("y", y), ("invert_y", y), ("scale_y", y)):
        method = getattr(found, name)
        array = method(values.numpy().astype(dtype))
        assert isinstance(array, np.ndarray) and array.dtype == dtype
        np.testing.assert_allclose(array, method(values).numpy(), rtol=1e-4, atol=1e-5)
    assert found.x(np.ones((2, 3), int)).dtype == np.float64
    with pytest.raises(ValueError, match="x must have 3 columns"):
        found.x(np.ones((2, 4)))


def test_of_a_data_frame_it_says_what_to_hand_over():
    frame = pd.DataFrame(np.ones((3, 2)))
    for call in (lambda: Normalisation.fit(frame), lambda: Normalisation.identity(2, 0).x(frame)):
        with pytest.raises(TypeError, match=r"x must be .* got DataFrame: hand over its \.to_numpy\(\)"):
            call()
