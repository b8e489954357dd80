"""Decode the official archive of CIFAR-10: six pickled batches, read without running code from a pickle."""

from __future__ import annotations

import io
import math
import pickle
import tarfile
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gilib.data.images.files import Arrays, File

FOLDER = "cifar-10-batches-py/"
BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
SHAPE = (3, 32, 32)
NUM_CLASSES = 10


def decode(files: Sequence[File]) -> Arrays:
    """Decode `cifar-10-python.tar.gz`: five training batches and the test batch, in official order.

    Raises:
        DataError: if the archive is damaged or incomplete, or a batch does not hold images and labels.
    """
    (archive,) = files
    members = _members(archive)
    batches = [_batch(archive, name, members[name]) for name in BATCHES]
    train_x, train_y = (torch.cat(parts) for parts in zip(*batches[:-1], strict=True))
    return Arrays(train_x, train_y, *batches[-1])


def load_arrays_only(content: bytes) -> object:
    """Unpickle plain values and NumPy arrays; refuse every other class or function.

    Strings of Python 2 become bytes.

    Raises:
        pickle.UnpicklingError: if the pickle names code that a NumPy array does not need.

    >>> load_arrays_only(pickle.dumps({"labels": [6, 9]}))
    {'labels': [6, 9]}
    """
    return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that knows only the three names that a pickled NumPy array needs."""

    KNOWN = {
        ("numpy", "dtype"): np.dtype,
        ("numpy", "ndarray"): np.ndarray,
        **dict.fromkeys(
            [("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")],
            np.empty(0).__reduce__()[0],
        ),
    }

    def find_class(self, module: str, name: str) -> object:
        """Return a constructor of arrays; refuse every other name."""
        try:
            return self.KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"the pickle asks for {module}.{name}, which no batch of images needs"
            ) from None


def _members(archive: File) -> dict[str, bytes]:
    """Read the six batches by name in one pass over the archive, without writing to disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive.content), mode="r|gz") as members:
            for member in members:
                name = member.name.removeprefix(FOLDER)
                stream = members.extractfile(member) if name in BATCHES else None
                if stream is not None:
                    found[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise archive.refusal(f"is not a whole tar.gz archive ({error})") from error
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise archive.refusal(f"is incomplete, it lacks {', '.join(missing)}")
    return found


def _batch(archive: File, name: str, content: bytes) -> tuple[Tensor, Tensor]:
    """Decode the images, uint8 `[n, 3, 32, 32]`, and labels, int64 `[n]`, of one batch."""
    try:
        batch = load_arrays_only(content)
    except Exception as error:  # a damaged pickle may raise anything
        raise archive.refusal(f"has a batch {name} that cannot be read ({error})") from error
    images, labels = (batch.get(b"data"), batch.get(b"labels")) if isinstance(batch, dict) else (None, None)
    width = math.prod(SHAPE)
    if (
        not isinstance(images, np.ndarray)
        or (images.dtype, images.shape[1:]) != (np.uint8, (width,))
        or not isinstance(labels, list)
        or len(labels) != len(images)
    ):
        raise archive.refusal(f"has a batch {name} without uint8 images [n, {width}] and as many labels")
    if not all(type(label) is int and 0 <= label < NUM_CLASSES for label in labels):
        raise archive.refusal(f"has a batch {name} with labels that are not integers from 0 to 9")
    return torch.from_numpy(images.reshape(-1, *SHAPE)), torch.tensor(labels)
