"""The MATLAB file of SVHN, on small ones written by SciPy."""

import io
import sys

import numpy as np
import pytest
import scipy.io

from gilib.data import DataError
from gilib.data.images import svhn
from tests.data.image_support import file, random_bytes


def matlab(**arrays) -> bytes:
    stream = io.BytesIO()
    scipy.io.savemat(stream, arrays)
    return stream.getvalue()


def test_svhn_arrays():
    images, labels = random_bytes(32, 32, 3, 5), np.array([[1], [10], [9], [10], [2]], np.uint8)
    arrays = svhn.decode([file(matlab(X=images, y=labels))])
    assert arrays.test_y.tolist() == [1, 0, 9, 0, 2]
    assert arrays.test_x.shape == (5, 3, 32, 32) and arrays.test_x.is_contiguous()
    assert int(arrays.test_x[3, 2, 7, 11]) == images[7, 11, 2, 3]
    assert np.array_equal(arrays.test_x[4, 1], images[:, :, 1, 4])
    assert arrays.train_x.shape == (0, 3, 32, 32) and arrays.train_y.shape == (0,)


@pytest.mark.parametrize(
    "content", [b"", b"<html>not found</html>", matlab(X=random_bytes(32, 32, 3, 5))[:900]]
)
def test_files_that_are_not_matlab(content):
    with pytest.raises(DataError, match="^a file is not a MATLAB file that can be read .*: fetch it again$"):
        svhn.decode([file(content)])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": random_bytes(32, 32, 3, 5)}, r"holds X uint8 \(32, 32, 3, 5\) and y \(0,\), wanted"),
        ({"X": random_bytes(32, 32, 3, 5), "y": np.ones((4, 1))}, r"and y \(4, 1\), wanted uint8"),
        ({"X": np.ones((32, 32, 3, 5)), "y": np.ones((5, 1))}, "holds X float64"),
        ({"X": random_bytes(32, 32, 3, 2), "y": np.array([[0], [1]])}, "labels that are not integers from 1"),
    ],
)
def test_matlab_files_that_hold_something_else(arrays, message):
    with pytest.raises(DataError, match=message):
        svhn.decode([file(matlab(**arrays))])


def test_scipy_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match="scipy is needed to read the MATLAB file .*pip install scipy"):
        svhn.decode([file(b"")])
