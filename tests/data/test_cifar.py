"""The official archive of CIFAR-10, on small ones pickled as Python 2 did it."""

import io
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from gilib.data import DataError
from gilib.data.images import cifar
from tests.data.image_support import file, random_bytes


class Python2Pickler(pickle._Pickler):
    """Writes what Python 2 and its NumPy wrote, as the official batches were: strings of bytes."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)

    dispatch[bytes] = save_bytes

    def save_global(self, value, name=None):
        module = "numpy.core.multiarray" if value.__name__ == "_reconstruct" else "numpy"
        self.write(f"c{module}\n{value.__name__}\n".encode())


Python2Pickler.dispatch[type] = Python2Pickler.save_global
Python2Pickler.dispatch[type(pickle.dumps)] = Python2Pickler.save_global


def python2_pickle(value) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, 2).dump(value)
    return stream.getvalue()


def batch(k: int, n: int = 3) -> dict:
    return {
        b"batch_label": b"training batch",
        b"labels": [int(label) for label in random_bytes(n, seed=k, high=10)],
        b"data": random_bytes(n, 3072, seed=k),
        b"filenames": [b"a.png"] * n,
    }


def members(**changes) -> dict[str, bytes]:
    """The six batches, in another order than they are asked for."""
    names = ("test_batch", *(f"data_batch_{k}" for k in (4, 2, 5, 1, 3)))
    made = {name: python2_pickle(batch(k)) for k, name in enumerate(names)}
    return {**made, **changes}


def archive(content: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, value in content.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(value)
            tar.addfile(entry, io.BytesIO(value))
    return stream.getvalue()


def test_the_pickles_of_these_tests_are_those_of_python_2():
    content = python2_pickle(batch(0))
    assert b"cnumpy.core.multiarray\n_reconstruct\n" in content and b"cnumpy\ndtype\n" in content
    assert b"_codecs" not in content and content.startswith(b"\x80\x02")


@pytest.mark.filterwarnings("error")
def test_cifar_arrays():
    arrays = cifar.decode([file(archive(members()))])
    order = {"test_batch": 0, "data_batch_4": 1, "data_batch_2": 2, "data_batch_5": 3, "data_batch_1": 4}
    order["data_batch_3"] = 5
    for k in range(1, 6):
        written = batch(order[f"data_batch_{k}"])
        rows = slice(3 * (k - 1), 3 * k)
        # red, green, blue planes one after the other, row by row
        assert np.array_equal(arrays.train_x[rows].reshape(3, -1), written[b"data"])
        assert arrays.train_y[rows].tolist() == written[b"labels"]
    assert arrays.test_x.shape == (3, 3, 32, 32) and arrays.test_y.tolist() == batch(0)[b"labels"]
    assert np.array_equal(arrays.test_x[1, 2, 5], batch(0)[b"data"][1, 2048 + 5 * 32 : 2048 + 6 * 32])


class Runs:
    """Unpickled with the common unpickler, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_no_pickle_runs_anything(tmp_path, protocol):
    content = pickle.dumps({"data": Runs(tmp_path / "made")}, protocol)
    with pytest.raises(pickle.UnpicklingError, match="asks for .*mkdir, which no batch of images needs"):
        cifar.load_arrays_only(content)
    with pytest.raises(DataError, match="has a batch data_batch_2 that cannot be read .*mkdir.*: fetch it"):
        cifar.decode([file(archive(members(data_batch_2=content)))])
    assert list(tmp_path.iterdir()) == []
    pickle.loads(content)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]  # so it is dangerous indeed


@pytest.mark.parametrize(
    "name",
    ["builtins\neval", "numpy\nload", "numpy\nfromfile", "numpy.core.multiarray\nfromfile", "os\nsystem"],
)
def test_only_three_names_are_known(name):
    with pytest.raises(pickle.UnpicklingError, match="which no batch of images needs"):
        cifar.load_arrays_only(f"c{name}\n.".encode())


def test_no_attribute_of_a_known_name_is_reached():
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."  # STACK_GLOBAL with a dotted name
    assert pickle.loads(dotted) is np.ndarray.tofile
    with pytest.raises(pickle.UnpicklingError, match="asks for numpy.ndarray.tofile"):
        cifar.load_arrays_only(dotted)


def test_an_archive_that_is_truncated_or_incomplete():
    content = archive(members())
    for bad in (content[:2000], b"", b"<html>not found</html>"):
        with pytest.raises(DataError, match=r"not a whole tar\.gz archive|incomplete"):
            cifar.decode([file(bad)])
    partial = {name: value for name, value in members().items() if name not in ("data_batch_3", "test_batch")}
    with pytest.raises(DataError, match="is incomplete, it lacks data_batch_3, test_batch: fetch it again"):
        cifar.decode([file(archive(partial))])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "without uint8 images"),
        ({b"data": [1, 2]}, r"without uint8 images \[n, 3072\] and as many labels"),
        ({b"data": random_bytes(3, 3072).astype(np.int64)}, "without uint8 images"),
        ({b"data": random_bytes(3, 784)}, "without uint8 images"),
        ({b"labels": [1, 2]}, "as many labels"),
        ({b"labels": [1, 2, 10]}, "labels that are not integers from 0 to 9"),
        ({b"labels": [1, 2, b"3"]}, "labels that are not integers from 0 to 9"),
    ],
)
def test_a_batch_that_holds_something_else(change, message):
    content = python2_pickle({**batch(1), **change} if isinstance(change, dict) else change)
    with pytest.raises(
        DataError, match=f"has a batch test_batch (with|without).*{message.split('out ')[-1]}"
    ):
        cifar.decode([file(archive(members(test_batch=content)))])


def test_a_damaged_pickle():
    for content in (b"", python2_pickle(batch(1))[:-200], b"garbage"):
        with pytest.raises(DataError, match="has a batch test_batch that cannot be read"):
            cifar.decode([file(archive(members(test_batch=content)))])
