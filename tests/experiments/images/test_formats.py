"""Formats of image files, on small ones written here: IDX, pickles of Python 2, zipped JPEG, MATLAB."""

import gzip
import io
import os
import pickle
import struct
import sys
import tarfile
import zipfile

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from experiments.images import formats
from experiments.images.formats import File
from gilib.data import DataError
from tests.support import refusals

COLOURS = {"airplane": (250, 10, 10), "cat": (10, 250, 10), "truck": (10, 10, 250)}


def file(content):
    return File("a file", content, "fetch it again")


def random_bytes(*shape, seed=0, high=256):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.uint8)


def idx_bytes(array):
    """An IDX file as its description says: zero, zero, type 8, number of axes, big-endian sizes, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def test_idx_arrays():
    images, test_images = random_bytes(5, 3, 4), random_bytes(2, 3, 4, seed=1)
    labels, test_labels = random_bytes(5, high=10), random_bytes(2, high=10)
    written = (images, labels, test_images, test_labels)
    arrays = formats.decode_idx([formats.gunzip(file(gzip.compress(idx_bytes(array)))) for array in written])
    assert np.array_equal(arrays.train_x[:, 0], images) and np.array_equal(arrays.test_x[:, 0], test_images)
    assert arrays.train_y.tolist() == labels.tolist() and arrays.test_y.tolist() == test_labels.tolist()
    assert arrays.train_x.shape == (5, 1, 3, 4) and arrays.train_y.dtype == torch.int64


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


def python2_pickle(value):
    stream = io.BytesIO()
    Python2Pickler(stream, 2).dump(value)
    return stream.getvalue()


def batch(k, n=3):
    return {
        b"batch_label": b"training batch",
        b"labels": [int(label) for label in random_bytes(n, seed=k, high=10)],
        b"data": random_bytes(n, 3072, seed=k),
        b"filenames": [b"a.png"] * n,
    }


def members(**changes):
    """The six batches, in another order than they are asked for."""
    names = ("test_batch", *(f"data_batch_{k}" for k in (4, 2, 5, 1, 3)))
    made = {name: python2_pickle(batch(k)) for k, name in enumerate(names)}
    return {**made, **changes}


def archive(content):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, value in content.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(value)
            tar.addfile(entry, io.BytesIO(value))
    return stream.getvalue()


@pytest.mark.filterwarnings("error")
def test_cifar_arrays():
    arrays = formats.decode_cifar([file(archive(members()))])
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


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
def test_no_pickle_runs_anything(tmp_path, protocol):
    content = pickle.dumps({"data": Runs(tmp_path / "made")}, protocol)
    with pytest.raises(pickle.UnpicklingError, match="asks for .*mkdir, which no batch of images needs"):
        formats.load_arrays_only(content)
    with pytest.raises(DataError, match="has a batch data_batch_2 that cannot be read .*mkdir.*: fetch it"):
        formats.decode_cifar([file(archive(members(data_batch_2=content)))])
    assert not (tmp_path / "made").exists()
    pickle.loads(content)
    assert (tmp_path / "made").is_dir()  # so it is dangerous indeed


def test_no_attribute_of_a_known_name_is_reached():
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."  # STACK_GLOBAL with a dotted name
    assert pickle.loads(dotted) is np.ndarray.tofile
    with pytest.raises(pickle.UnpicklingError, match="asks for numpy.ndarray.tofile"):
        formats.load_arrays_only(dotted)


def picture(colour, size=(32, 32), mode="RGB"):
    stream = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def zipped(content, compression=zipfile.ZIP_STORED, year=2009):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, value in content.items():
            made.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), value, compression)
    return stream.getvalue()


def pictures(split="train", number=2):
    """Plain colours: of each class its own, darker by ten with each image."""
    return {
        f"{split}/{kind}/{k:04d}.jpg": picture(tuple(max(c - 10 * k, 0) for c in colour))
        for kind, colour in COLOURS.items()
        for k in range(number)
    }


def test_jpeg_images_take_turns_and_have_their_labels():
    arrays = formats.decode_jpeg([file(zipped(pictures())), file(zipped(pictures("test", number=1)))])
    assert arrays.train_y.tolist() == [0, 1, 2, 0, 1, 2] and arrays.test_y.tolist() == [0, 1, 2]
    assert arrays.train_x.shape == (6, 3, 32, 32) and arrays.train_x.is_contiguous()
    for k, (label, x) in enumerate(zip(arrays.train_y.tolist(), arrays.train_x, strict=True)):
        colour = list(COLOURS.values())[label]
        wanted = torch.tensor([max(c - 10 * (k // 3), 0) for c in colour])[:, None, None]
        assert (x.long() - wanted).abs().max() <= 3  # colours are rounded on their way through JPEG


def test_jpeg_pixels_are_where_they_were():
    """Columns from dark to bright, rows the same: an axis in the wrong place would show."""
    ramp = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 32, 3))
    stream = io.BytesIO()
    Image.fromarray(ramp.copy()).save(stream, "JPEG", quality=100)
    content = file(zipped({"train/cat/0000.jpg": stream.getvalue()}))
    x = formats.decode_jpeg([content, content]).train_x[0].long()
    assert (x - torch.arange(0, 256, 8)).abs().max() <= 3


def test_jpeg_fingerprint_is_of_the_images_not_of_the_packing():
    content = pictures()
    reversed_order = dict(reversed(content.items()))
    first = formats.zip_fingerprint(file(zipped(content)))
    packed = zipped({"train/": b"", **reversed_order, "read.me": b"hello"}, zipfile.ZIP_DEFLATED, year=2020)
    assert formats.zip_fingerprint(file(packed)) == first
    altered = {**content, "train/cat/0001.jpg": picture((1, 2, 3))}
    assert formats.zip_fingerprint(file(zipped(altered))) != first
    assert formats.zip_fingerprint(file(zipped(dict(list(content.items())[:-1])))) != first


def matlab(**arrays):
    stream = io.BytesIO()
    scipy.io.savemat(stream, arrays)
    return stream.getvalue()


def test_svhn_arrays():
    images, labels = random_bytes(32, 32, 3, 5), np.array([[1], [10], [9], [10], [2]], np.uint8)
    arrays = formats.decode_svhn([file(matlab(X=images, y=labels))])
    assert arrays.test_y.tolist() == [1, 0, 9, 0, 2]
    assert arrays.test_x.shape == (5, 3, 32, 32) and arrays.test_x.is_contiguous()
    assert int(arrays.test_x[3, 2, 7, 11]) == images[7, 11, 2, 3]
    assert np.array_equal(arrays.test_x[4, 1], images[:, :, 1, 4])
    assert arrays.train_x.shape == (0, 3, 32, 32) and arrays.train_y.shape == (0,)


HTML, ZIP = b"<html>not found</html>", zipped(pictures())
PLACE = ZIP.index(b"train/cat/0001.jpg") + 200
FLIPPED = ZIP[:PLACE] + bytes([ZIP[PLACE] ^ 255]) + ZIP[PLACE + 1 :]
X, ONES = random_bytes(32, 32, 3, 5), np.ones((5, 1))
MATLAB = matlab(X=X)


def idx(content):
    labels = file(idx_bytes(random_bytes(5)))
    return formats.decode_idx([file(content), labels] * 2)


def cifar(content=None, **changes):
    return formats.decode_cifar([file(archive(members(**changes)) if content is None else content)])


def changed_batch(**change):
    return cifar(
        test_batch=python2_pickle(batch(1) | {name.encode(): value for name, value in change.items()})
    )


def jpeg(content):
    return formats.decode_jpeg([file(content)] * 2)


def one_picture(content):
    return jpeg(zipped(pictures() | {"train/cat/0001.jpg": content}))


def svhn(**arrays):
    return formats.decode_svhn([file(matlab(**arrays))])


def not_whole(kind, read, *contents):
    return [(lambda c=c: read(file(c)), f"^a file is not a {kind} .*: fetch it again$") for c in contents]


GZIP = gzip.compress(bytes(5000))[:-9], gzip.compress(bytes(50))[:-8] + bytes(8)  # truncated, altered
test_damaged_files = refusals(
    [
        *not_whole("whole gzip file", formats.gunzip, HTML, *GZIP),
        *not_whole("whole zip archive", formats.zip_fingerprint, HTML, b"", ZIP[:-30]),
        *not_whole("MATLAB file .* read", lambda f: formats.decode_svhn([f]), b"", HTML, MATLAB[:900]),
        (lambda: idx(b""), "begins with '', wanted '00000803' and 3 sizes"),
        (lambda: idx(idx_bytes(random_bytes(5))), "bytes with 3 axes: it begins with '00000801'"),
        (lambda: idx(b"\0\0\x08\x03\0\0"), "wanted '00000803' and 3 sizes"),
        (lambda: idx(idx_bytes(X[:5, :3, 0, :4])[:-1]), r"59 values and announces 60, shape \[5, 3, 4\]; it"),
        *((lambda c=c: cifar(c), r"not a whole tar\.gz archive|incomplete") for c in (b"", HTML)),
        (lambda: cifar(archive(members())[:2000]), r"not a whole tar\.gz archive|incomplete"),
        (lambda: cifar(archive({"data_batch_1": b"", "data_batch_2": b""})), "lacks data_batch_3, .*: fetch"),
        (lambda: cifar(test_batch=python2_pickle([])), "a batch test_batch without uint8 images"),
        (
            lambda: changed_batch(data=random_bytes(3, 3072).astype(np.int64)),
            "test_batch without uint8 images",
        ),
        (lambda: changed_batch(labels=[1, 2, 10]), "labels that are not integers from 0 to 9"),
        (lambda: jpeg(FLIPPED), r"has an image train/cat/0001\.jpg that cannot be read .*CRC"),
        (lambda: one_picture(picture((9, 9, 9), size=(28, 28))), r"RGB \(28, 28\), wanted RGB \(32, 32\)"),
        (lambda: one_picture(picture((9, 9, 9))[:300]), "that cannot be read .*(?i:truncated)"),
        (lambda: one_picture(b"no picture"), r"0001\.jpg that cannot be read .*cannot identify"),
        (lambda: svhn(X=X), r"holds X uint8 \(32, 32, 3, 5\) and y \(0,\), wanted"),
        (lambda: svhn(X=np.ones((32, 32, 3, 5)), y=ONES), "holds X float64"),
        (lambda: svhn(X=X, y=0 * ONES), "labels that are not integers from 1"),
    ],
    DataError,
)


@pytest.mark.parametrize(("module", "decode"), [("PIL.Image", "decode_jpeg"), ("scipy.io", "decode_svhn")])
def test_packages_are_named_where_they_are_missing(module, decode, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    files = [file(zipped(pictures()))] * (2 if decode == "decode_jpeg" else 1)
    with pytest.raises(ImportError, match="is needed to .*pip install (pillow|scipy)"):
        getattr(formats, decode)(files)
