"""The IDX format of MNIST, on files written here."""

import gzip
import struct

import numpy as np
import pytest
import torch

from gilib.data import DataError
from gilib.data.images import idx
from gilib.data.images.files import File
from tests.data.image_support import file, random_bytes


def idx_bytes(array: np.ndarray) -> bytes:
    """An IDX file as its description says: zero, zero, type 8, number of axes, big-endian sizes, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_files(images, labels, test_images, test_labels) -> list[File]:
    return [file(idx_bytes(array)) for array in (images, labels, test_images, test_labels)]


def test_idx_arrays():
    images, test_images = random_bytes(5, 3, 4), random_bytes(2, 3, 4, seed=1)
    labels, test_labels = random_bytes(5, high=10), random_bytes(2, high=10)
    arrays = idx.decode(idx_files(images, labels, test_images, test_labels))
    assert np.array_equal(arrays.train_x[:, 0], images) and np.array_equal(arrays.test_x[:, 0], test_images)
    assert arrays.train_y.tolist() == labels.tolist() and arrays.test_y.tolist() == test_labels.tolist()
    assert arrays.train_x.shape == (5, 1, 3, 4) and arrays.train_y.dtype == torch.int64


def test_idx_is_the_same_however_it_is_compressed():
    content = idx_bytes(random_bytes(5, 3, 4))
    for level in (0, 9):
        assert idx.gunzip(file(gzip.compress(content, level))).content == content


@pytest.mark.parametrize(
    "content",
    [b"<html>not found</html>", gzip.compress(bytes(5000))[:-9], gzip.compress(bytes(50))[:-8] + bytes(8)],
    ids=["another file", "truncated", "altered"],
)
def test_damaged_gzip(content):
    with pytest.raises(DataError, match="^a file is not a whole gzip file .*: fetch it again$"):
        idx.gunzip(file(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with '', wanted '00000803' and 3 sizes"),
        (idx_bytes(random_bytes(5)), "IDX file of bytes with 3 axes: it begins with '00000801'"),
        (b"\0\0\x0d\x03" + bytes(12), "begins with '00000d03'"),
        (b"\0\0\x08\x03\0\0", "wanted '00000803' and 3 sizes"),
        (idx_bytes(random_bytes(5, 3, 4))[:-1], r"holds 59 values and announces 60, shape \[5, 3, 4\]; it"),
        (idx_bytes(random_bytes(5, 3, 4)) + b"\0", "holds 61 values and announces 60"),
    ],
)
def test_damaged_idx(content, message):
    labels = idx_bytes(random_bytes(5))
    with pytest.raises(DataError, match=message):
        idx.decode([file(content), file(labels), file(content), file(labels)])
