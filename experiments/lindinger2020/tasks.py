"""The two tasks of Lindinger et al. (2020), Sec. 4.1: interpolation and extrapolation.

Settings that the paper's text does not state are those of the authors' code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.data import Dataset, Normalisation, load_uci
from gilib.validation import check_choice, check_count

SETS = ("boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
LEAST_DEVIATION = 1e-3  # of a feature that the projection uses, in original units
SHOWN = 400  # largest number of test points that are recorded singly

Halves = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Task:
    """One repetition of a task; inputs and targets normalised on all training points.

    Attributes:
        name: name of the data set.
        sha256: checksum of its arrays.
        x: training inputs, `[N, D]`.
        y: training targets, `[N, 1]`.
        held_x: inputs held out for early stopping, `[H, D]`; perhaps none.
        held_y: targets held out for early stopping, `[H, 1]`.
        all_x: training and held-out inputs, `[N + H, D]`, for k-means, principal directions and distances.
        test_x: test inputs, `[N*, D]`.
        test_y: test targets in original units, `[N*, 1]`.
        normalisation: normalisation of the features that are used.
        shown: test points that are recorded singly, the same for all methods, `[≤ 400]`.
    """

    name: str
    sha256: str
    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor
    all_x: Tensor
    test_x: Tensor
    test_y: Tensor
    normalisation: Normalisation
    shown: Tensor


def interpolation(x: Tensor, repetition: int) -> Halves:
    """Return rows for training and for the test: a random 90 % and the rest.

    >>> train, test = interpolation(torch.zeros(20, 1), 0)
    >>> len(train), len(test)
    (18, 2)
    """
    rows = torch.randperm(len(x), generator=_generator(1, repetition))
    cut = round(0.9 * len(x))
    return rows[:cut], rows[cut:]


def extrapolation(x: Tensor, repetition: int) -> Halves:
    """Return rows for training and for the test: the upper and the lower half along a random direction.

    With inputs normalised on the complete set, w ~ N(0, Id) and s_n = wᵀ x_n, the ⌊N/2⌋ rows with the
    smallest s are for the test. Features that hardly vary are ignored.

    >>> train, test = extrapolation(torch.arange(5.0)[:, None], 0)
    >>> len(train), sorted(test.tolist()) in ([0, 1], [3, 4])
    (3, True)
    """
    x = x[:, x.std(0) > LEAST_DEVIATION]
    weights = torch.randn(x.shape[1], 1, generator=_generator(2, repetition), dtype=torch.float64)
    projected = ((x - x.mean(0)) / x.std(0)).double() @ weights
    rows = projected[:, 0].argsort(stable=True)
    return rows[len(x) // 2 :], rows[: len(x) // 2]


TASKS: dict[str, Callable[[Tensor, int], Halves]] = {
    "extrapolation": extrapolation,
    "interpolation": interpolation,
}


@functools.lru_cache(1)
def _dataset(name: str) -> Dataset:
    return load_uci(name)


def load(
    name: str,
    task: str,
    repetition: int,
    held_out: float = 0.1,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> Task:
    """Load one repetition of a task on a set.

    Args:
        name: name of the set.
        task: "interpolation" or "extrapolation".
        repetition: seed of splits, direction, hold-out and recorded points.
        held_out: fraction of the training points that is held out for early stopping, at least 0 and below 1.
        device: device of the tensors.
        dtype: dtype of normalised tensors.

    Raises:
        ValueError: if the task is unknown, the repetition is negative, or `held_out` is out of range.
    """
    check_choice(task, tuple(TASKS), "task")
    check_count(repetition, "repetition", 0)
    if not 0.0 <= held_out < 1.0:
        raise ValueError(f"held_out must be at least 0 and below 1, got {held_out!r}")
    return split(_dataset(name), task, repetition, held_out, device, dtype)


def split(
    dataset: Dataset,
    task: str,
    repetition: int,
    held_out: float,
    device: torch.device | None,
    dtype: torch.dtype,
) -> Task:
    """Return one repetition for a loaded set, without features that are constant in the training points."""
    train, test = TASKS[task](dataset.x, repetition)
    x = dataset.x[:, dataset.x[train].amin(0) < dataset.x[train].amax(0)]
    normalisation = Normalisation.fit(x[train], dataset.y[train])
    held, used = _apart(len(train), held_out, repetition)
    inputs = normalisation.x(x).to(device, dtype)
    targets = normalisation.y(dataset.y).to(device, dtype)
    shown = torch.randperm(len(test), generator=_generator(4, repetition))[:SHOWN].sort().values
    return Task(
        name=dataset.name,
        sha256=dataset.sha256,
        x=inputs[train[used]],
        y=targets[train[used]],
        held_x=inputs[train[held]],
        held_y=targets[train[held]],
        all_x=inputs[train],
        test_x=inputs[test],
        test_y=dataset.y[test].to(device),
        normalisation=normalisation.to(device=device),
        shown=shown.to(device),
    )


def _apart(points: int, held_out: float, repetition: int) -> Halves:
    """Return random training points that are held out, and those that are used."""
    rows = torch.randperm(points, generator=_generator(3, repetition))
    cut = round(held_out * points)
    return rows[:cut], rows[cut:].sort().values


def _generator(stream: int, repetition: int) -> torch.Generator:
    return torch.Generator().manual_seed(10_000 * stream + repetition)
