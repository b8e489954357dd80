import hashlib
import struct

import numpy as np
import pytest
import torch

from gilib.data import Dataset, sha256_of, split_indices

ONE = torch.ones(3, 1, dtype=torch.float64)


def small(num_splits=20):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(30, 1, generator=generator, dtype=torch.float64)
    return Dataset(name="small", x=x, y=y, num_splits=num_splits)


def test_checksum_is_the_documented_one():
    x = torch.tensor([[1.5, -2.0], [0.0, 1e-300]], dtype=torch.float64)
    y = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    content = b"x <f8 2 2\ny <f8 2 1\n" + struct.pack("<6d", 1.5, -2.0, 0.0, 1e-300, 3.0, 4.0)
    assert sha256_of(x, y) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("num_points", [10, 308])
def test_splits_follow_the_publishers_recipe(num_points):
    state = np.random.get_state()
    try:
        np.random.seed(1)
        for k in range(3):
            permutation = np.random.choice(range(num_points), num_points, replace=False)
            cut = round(0.9 * num_points)
            train, test = split_indices(num_points, k)
            assert np.array_equal(train.numpy(), permutation[:cut])
            assert np.array_equal(test.numpy(), permutation[cut:])
    finally:
        np.random.set_state(state)


def test_global_random_state_is_neither_read_nor_changed():
    first = small().split(4)
    np.random.seed(123)
    torch.manual_seed(123)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    second = small().split(4)
    assert torch.equal(first.train_index, second.train_index)
    assert np.array_equal(before[0], np.random.get_state()[1]) and torch.equal(
        before[1], torch.get_rng_state()
    )


def test_split_normalises_by_its_training_data_alone():
    data = small()
    split = data.split(2, dtype=torch.float64)
    x, y = data.x[split.train_index], data.y[split.train_index]
    torch.testing.assert_close(split.train_x, (x - x.mean(0)) / x.std(0))
    torch.testing.assert_close(split.train_y, (y - y.mean(0)) / y.std(0))
    torch.testing.assert_close(split.test_x, (data.x[split.test_index] - x.mean(0)) / x.std(0))
    torch.testing.assert_close(split.test_y, (data.y[split.test_index] - y.mean(0)) / y.std(0))
    assert torch.equal(split.test_x_raw, data.x[split.test_index])
    assert torch.equal(split.test_y_raw, data.y[split.test_index])
    torch.testing.assert_close(split.normalisation.invert_y(split.test_y), split.test_y_raw)
    assert sorted([*split.train_index.tolist(), *split.test_index.tolist()]) == list(range(30))
    assert (split.name, split.k) == ("small", 2) and data.split(np.int64(3)).k == 3


def test_a_split_needs_a_row_to_test_on():
    five, four = (Dataset("few", torch.ones(n, 1).double(), torch.ones(n, 1).double()) for n in (5, 4))
    assert len(five.split(0).test_x) == 1
    with pytest.raises(ValueError, match="few has 4 rows, but a split needs five"):
        four.split(0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: small().split(20), ValueError, r"small has splits 0 to 19, got 20: choose one of range"),
        (lambda: small().split(True), ValueError, "k must be an integer, got True"),
        (lambda: small().split(0, dtype=torch.int64), TypeError, "dtype must be a floating-point type"),
        (lambda: Dataset("a", torch.ones(2, 1), torch.ones(2, 1), 1), TypeError, "x of a data set must be"),
        (lambda: Dataset("a", ONE, torch.tensor([0, 3, 1]), 1, class_names=("a", "b")), ValueError, "0 to 1"),
        (lambda: Dataset("a", ONE, torch.ones(3, 1)), TypeError, "or int64 for labels, got torch.flo"),
        (lambda: sha256_of(torch.ones(2), torch.ones(2)), ValueError, r"x must be \[N, D\] and y \[N, O\]"),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
