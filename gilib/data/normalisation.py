"""Scale inputs and targets to mean zero and standard deviation one, and back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from gilib.validation import as_tensor

T = TypeVar("T", Tensor, np.ndarray)
HUGE = 1e150  # numbers of this size cannot be squared and summed in float64
ROUNDINGS = 10  # a column whose values differ by no more rounding units than this is constant
_FLOAT64 = torch.empty(0, dtype=torch.float64)


def _of_columns(method: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, T], T]:
    """Check the columns of what a method scales; accept NumPy arrays, too, and then return one."""
    *_, name = inspect.signature(method).parameters

    @wraps(method)
    def both(self: Any, value: Any) -> Any:
        statistic = self.x_mean if name == "x" else self.y_mean
        if name != "x" and self.inputs_alone:
            return value
        tensor = _floating(name, value)
        if tensor.dim() == 0 or tensor.shape[-1] != len(statistic):
            raise ValueError(
                f"{name} must have {len(statistic)} columns on its last axis, as the training data had, "
                f"got shape {tuple(tensor.shape)}"
            )
        if not isinstance(value, np.ndarray):
            return method(self, tensor)
        return method(self, tensor).numpy().astype(value.dtype if value.dtype.kind == "f" else np.float64)

    return both


@dataclass(frozen=True, eq=False, repr=False)
class Normalisation:
    r"""Affine maps between original units and units in which the training data have mean 0 and deviation 1.

    .. math:: \tilde x = (x - m_x) / s_x, \qquad \tilde y = (y - m_y) / s_y, \qquad
              \log p(y) = \log p(\tilde y) - \sum_o \log s_{y,o}

    The statistics come from training data only. Every method keeps the dtype and the device of its argument,
    whatever the dtype of the statistics (float64 from `fit`), and returns a NumPy array if it was given one.
    Arguments may have any leading axes: `[..., D]` and `[..., O]`.

    Attributes:
        x_mean: mean of each input column, `[D]`, original units.
        x_std: standard deviation of each input column, `[D]`, original units, positive.
        y_mean: mean of each target, `[O]`, original units.
        y_std: standard deviation of each target, `[O]`, original units, positive.
        y_stretch: by which factor `gilib.predict` stretches Gaussian predictions of each target around their
            mean, `[O]`, positive: what a calibration found. None: not at all.

    Raises:
        TypeError: if a statistic or an argument is not a floating-point tensor.
        ValueError: if shapes do not fit, or a statistic is not finite or a deviation not positive.

    >>> Normalisation.fit(torch.tensor([[0.0], [2.0]]), torch.tensor([[5.0], [7.0]])).y_mean
    tensor([6.])
    """

    x_mean: Tensor  # [D]
    x_std: Tensor  # [D]
    y_mean: Tensor  # [O]
    y_std: Tensor  # [O]
    y_stretch: Tensor | None = None  # [O]

    def __post_init__(self) -> None:
        state = self.state()
        for name, value in state.items():
            _check_statistic(name, value)
        for mean, std in (("x_mean", "x_std"), ("y_mean", "y_std"), ("y_mean", "y_stretch")):
            if std in state and state[mean].shape != state[std].shape:
                raise ValueError(
                    f"{mean} and {std} must have the same length, got {len(getattr(self, mean))} "
                    f"and {len(getattr(self, std))}: fit both to the same columns"
                )

    @classmethod
    def fit(
        cls,
        x: Tensor | np.ndarray,
        y: Tensor | np.ndarray | None = None,
        *,
        weights: Tensor | np.ndarray | None = None,
    ) -> Normalisation:
        """Compute means and unbiased deviations of training data; a constant column gets deviation 1.

        Args:
            x: training inputs, `[N, D]`, original units; a tensor or a NumPy array.
            y: training targets, `[N, O]`, original units; a tensor or a NumPy array. With None (for labels)
                targets and predictions are not scaled.
            weights: how many rows each row counts as, `[N]`, positive; None: one.

        Raises:
            TypeError: if an argument is not a floating-point tensor.
            ValueError: if an argument has no rows, is not two-dimensional or finite, or row counts differ.

        >>> Normalisation.fit(torch.ones(3, 1), torch.tensor([[0.0], [2.0], [4.0]])).x_std
        tensor([1.])
        """
        inputs = _floating("x", x)
        targets = inputs.new_zeros(len(inputs), 0) if y is None else _floating("y", y)
        for name, value in (("x", inputs), ("y", targets)):
            if value.dim() != 2 or len(value) == 0:
                raise ValueError(
                    f"{name} must be [N, columns] with at least one row, got {tuple(value.shape)}: "
                    "reshape a vector with [:, None]"
                )
            if not bool((value.abs() < HUGE).all()):
                raise ValueError(
                    f"{name} holds NaN, infinity or numbers beyond {HUGE:g}: remove, impute or rescale them"
                )
        if len(inputs) != len(targets):
            raise ValueError(f"x and y must have equally many rows, got {len(inputs)} and {len(targets)}")
        count = torch.ones(len(inputs)) if weights is None else _floating("weights", weights)
        if count.shape != inputs.shape[:1]:
            raise ValueError(f"weights must be [{len(inputs)}], one for each row, got {tuple(count.shape)}")
        return cls(*_mean_and_std(inputs, count), *_mean_and_std(targets, count))

    @classmethod
    def identity(cls, num_inputs: int, num_outputs: int, dtype: torch.dtype = torch.float64) -> Normalisation:
        """Return a normalisation of `num_inputs` inputs and `num_outputs` targets that changes nothing.

        >>> Normalisation.identity(3, 1).log_density_shift
        0.0
        """
        return cls(
            torch.zeros(num_inputs, dtype=dtype),
            torch.ones(num_inputs, dtype=dtype),
            torch.zeros(num_outputs, dtype=dtype),
            torch.ones(num_outputs, dtype=dtype),
        )

    @_of_columns
    def x(self, x: Tensor) -> Tensor:
        """Scale inputs `[..., D]` from original to normalised units."""
        return (x - self.x_mean.to(x)) / self.x_std.to(x)  # [..., D]

    @_of_columns
    def invert_x(self, x: Tensor) -> Tensor:
        """Scale inputs `[..., D]` from normalised to original units."""
        return x * self.x_std.to(x) + self.x_mean.to(x)  # [..., D]

    @_of_columns
    def y(self, y: Tensor) -> Tensor:
        """Scale targets `[..., O]` from original to normalised units."""
        return (y - self.y_mean.to(y)) / self.y_std.to(y)  # [..., O]

    @_of_columns
    def invert_y(self, y: Tensor) -> Tensor:
        """Scale targets or predictive means `[..., O]` from normalised to original units."""
        return y * self.y_std.to(y) + self.y_mean.to(y)  # [..., O]

    @_of_columns
    def scale_y(self, sd: Tensor) -> Tensor:
        """Scale standard deviations of targets `[..., O]` from normalised to original units (no shift)."""
        return sd * self.y_std.to(sd)  # [..., O]

    def __repr__(self) -> str:
        return f"Normalisation({len(self.x_mean)} inputs, {len(self.y_mean)} targets)"

    @property
    def inputs_alone(self) -> bool:
        """Whether only inputs are scaled."""
        return not len(self.y_mean)

    @property
    def log_density_shift(self) -> float:
        r"""Nats per point to ADD to a log density in normalised units; the sum is in original units.

        .. math:: -\sum_o \log s_{y,o}

        >>> one = torch.ones(1)
        >>> round(Normalisation(one, one, one, 2 * one).log_density_shift, 4)
        -0.6931
        """
        return float(self.y_std.double().reciprocal().log().sum())

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Normalisation:
        """Return this normalisation with its statistics in another dtype or on another device."""
        state = self.state()
        return Normalisation(**{name: value.to(device=device, dtype=dtype) for name, value in state.items()})

    def state(self) -> dict[str, Tensor]:
        """Return the statistics as a plain dictionary of tensors, which `Normalisation(**state)` takes."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if value is not None}


def constant_columns(value: Tensor) -> Tensor:
    """Return which columns are constant up to rounding, `[columns]`.

    Columns such as proportions that sum to one vary by a few rounding errors. Dividing by so small a
    deviation would turn the next rounding error into millions.
    """
    low, high = value.min(0).values, value.max(0).values
    rounding = torch.finfo(value.dtype).eps * torch.maximum(low.abs(), high.abs())
    return high - low <= ROUNDINGS * rounding


def _mean_and_std(value: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return column means and unbiased deviations of rows that count; a constant column has deviation 1."""
    constant, exact, count = constant_columns(value), value.double(), count.to(value.device).double()[:, None]
    mean = torch.where(constant, exact.min(0).values, (count * exact).sum(0) / count.sum())
    variance = (count * (exact - mean).square()).sum(0) / (count.sum() - 1.0).clamp_min(1.0)
    std = torch.where(constant, torch.ones_like(mean), variance.sqrt())
    return mean.to(value), std.to(value)


def _floating(name: str, value: Any) -> Tensor:
    """Return a floating-point tensor; a NumPy array is converted to float64."""
    if isinstance(value, np.ndarray):
        return as_tensor(value, name, _FLOAT64).double()
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        convert = "convert with torch.as_tensor(..., dtype=...)"
        advice = "hand over its .to_numpy()" if hasattr(value, "to_numpy") else convert
        raise TypeError(f"{name} must be a floating-point tensor, got {got}: {advice}")
    return value


def _check_statistic(name: str, value: Tensor) -> None:
    _floating(name, value)
    if value.dim() != 1:
        raise ValueError(f"{name} must have one entry per column, got shape {tuple(value.shape)}")
    positive = not name.endswith("_mean")
    if not bool(torch.isfinite(value).all()) or (positive and not bool((value > 0).all())):
        wanted = "finite and positive" if positive else "finite"
        raise ValueError(f"{name} must be {wanted}, got {value.tolist()}: fit it to finite data")
