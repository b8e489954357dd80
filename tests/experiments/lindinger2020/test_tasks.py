"""The two tasks: what is trained on, what is held out, and what never meets."""

import math

import pytest
import torch

from experiments.lindinger2020 import tasks
from gilib.data import Dataset, load_uci
from tests.support import D, assert_equal, normals, refusals

EVERY = ("extrapolation", "interpolation")


def points(size=41, features=3, seed=0):
    x = normals(size, features, seed=seed)
    return Dataset("made up", x, x.sum(-1, keepdim=True) + 5.0, 20)


def split(dataset, task="extrapolation", repetition=0, held_out=0.1):
    return tasks.split(dataset, task, repetition, held_out, None, D)


@pytest.mark.parametrize("task", EVERY)
def test_every_row_is_used_once(task):
    """Trained on, held out or tested: targets, all different, tell which row a point is."""
    dataset = points()
    found = split(dataset, task)
    trained, held = (found.normalisation.invert_y(y) for y in (found.y, found.held_y))
    assert_equal(torch.cat([trained, held, found.test_y]).sort(0).values, dataset.y.sort(0).values, 1e-12)
    sizes = {"extrapolation": (21, 20), "interpolation": (37, 4)}[task]
    assert (len(found.all_x), len(found.test_x)) == sizes
    assert len(found.held_x) == round(0.1 * sizes[0]) and len(found.x) == sizes[0] - len(found.held_x)
    for values in (found.all_x, torch.cat([found.y, found.held_y])):  # normalised by the training points
        assert_equal(values.mean(0), torch.zeros(values.shape[1], dtype=D), 1e-12)
        assert_equal(values.std(0), torch.ones(values.shape[1], dtype=D), 1e-12)


@pytest.mark.parametrize("task", EVERY)
def test_nothing_of_the_test_points_reaches_the_training(task):
    """Moving all targets of the test, and its inputs in the interpolation, changes nothing else."""
    dataset = points()
    _, rows = tasks.TASKS[task](dataset.x, 0)
    x, y = dataset.x.clone(), dataset.y.clone()
    y[rows] += 100.0
    if task == "interpolation":
        x[rows] *= 7.0
    before, after = split(dataset, task), split(Dataset("moved", x, y, 20), task)
    for name in ("x", "y", "held_x", "held_y", "all_x"):
        assert_equal(getattr(before, name), getattr(after, name))
    assert_equal(after.test_y, before.test_y + 100.0)


def test_the_test_is_the_lower_half_along_a_direction():
    """Some w separates: the best linear score of half against half, here the recovered direction itself."""
    x = points(1000, 4).x * torch.tensor([1.0, 10.0, 100.0, 0.1]) + 3.0
    train, test = tasks.extrapolation(x, 5)
    white = (x - x.mean(0)) / x.std(0)
    direction = white[train].mean(0) - white[test].mean(0)
    weights = normals(4, 1, seed=20_005)[:, 0]
    projected = white @ weights
    assert projected[test].max() <= projected[train].min() and len(test) == len(train) == 500
    assert torch.nn.functional.cosine_similarity(direction, weights, 0) > 0.95


def test_the_direction_does_not_see_units_nor_features_that_hardly_vary():
    x = points().x
    alone = tasks.extrapolation(x, 3)
    scaled = tasks.extrapolation(torch.cat([x * 50.0 - 2.0, 1e-4 * normals(41, 1, seed=9)], -1), 3)
    assert all(torch.equal(one, other) for one, other in zip(alone, scaled, strict=True))


@pytest.mark.parametrize("task", EVERY)
def test_repetitions_are_their_own_and_the_same_again(task):
    first, again, second = (tasks.load("boston", task, k) for k in (0, 0, 1))
    assert torch.equal(first.x, again.x) and torch.equal(first.shown, again.shown)
    assert set(first.test_y.flatten().tolist()) != set(second.test_y.flatten().tolist())


def test_the_shown_points_are_the_same_whatever_is_held_out_and_targets_are_the_original_ones():
    first, second = (tasks.load("wine", "extrapolation", 2, held) for held in (0.0, 0.1))
    assert torch.equal(first.shown, second.shown) and torch.equal(first.test_x, second.test_x)
    assert len(first.shown) == len(first.shown.unique()) == tasks.SHOWN < len(first.test_x)
    assert len(first.held_x) == 0 and len(first.x) == len(first.all_x) == len(second.all_x)
    found = tasks.load("boston", "extrapolation", 0, 0.0)
    assert (len(found.x), len(found.test_x)) == (253, 253), "the sizes of the paper"
    assert set(found.test_y.flatten().tolist()) <= set(load_uci("boston").y.flatten().tolist())
    assert found.x.dtype == torch.float32 and found.test_y.dtype == D


test_bad_input = refusals(
    [
        (lambda: tasks.load("boston", "between", 0), "unknown task 'between': choose one of"),
        (lambda: tasks.load("boston", "extrapolation", -1), "repetition must be"),
        (lambda: tasks.load("boston", "extrapolation", 0, 1.0), "at least 0 and below 1, got 1.0"),
        (lambda: tasks.load("boston", "extrapolation", 0, math.nan), "held_out must be .* below 1, got nan"),
    ]
)
