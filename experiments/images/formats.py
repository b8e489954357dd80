"""The formats of image files: IDX (MNIST), pickles (CIFAR-10), JPEG in zip archives, and MATLAB (SVHN)."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import pickle
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gilib.data import DataError
from gilib.optional import require_package

BYTES = b"\x00\x00\x08"  # of an IDX file of unsigned bytes; one more byte gives the number of axes
FOLDER = "cifar-10-batches-py/"
BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
SHAPE = (3, 32, 32)  # of an image of CIFAR-10
MEMBER = re.compile(r"(?:train|test)/(?P<kind>\w+)/(?P<number>\d{4})\.jpg")


class Arrays(NamedTuple):
    """Decoded images, uint8 `[N, C, H, W]`, and labels, int64 `[N]`, for training and for testing."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class File:
    """The content of a file, with its path or address, and with how to repair it, for errors."""

    origin: str
    content: bytes
    remedy: str

    def refusal(self, problem: str, kind: type[DataError] = DataError) -> DataError:
        """Return an error that states a problem with this file and its remedy.

        >>> str(File("a.gz", b"", "fetch it again").refusal("is empty"))
        'a.gz is empty: fetch it again'
        """
        return kind(f"{self.origin} {problem}: {self.remedy}")


def md5(file: File) -> str:
    """Return the MD5 of a file's content, the checksum that publishers use.

    >>> md5(File("a", b"", ""))
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    return hashlib.md5(file.content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Format:
    """The functions that read the files of a layout."""

    # turns all unpacked files into arrays; raises a `DataError` for those that are damaged
    decode: Callable[[Sequence[File]], Arrays]
    unpack: Callable[[File], File] = lambda file: file  # decompresses one file
    fingerprint: Callable[[File], str] = md5  # identifies an unpacked file before it is decoded


def gunzip(file: File) -> File:
    """Decompress a file, so that its checksum does not depend on the compression."""
    try:
        return replace(file, content=gzip.decompress(file.content))
    except (OSError, EOFError, zlib.error) as error:
        raise file.refusal(f"is not a whole gzip file ({error})") from error


def decode_idx(files: Sequence[File]) -> Arrays:
    """Decode unpacked training images, training labels, test images and test labels, in this order."""
    train_x, train_y, test_x, test_y = files
    return Arrays(
        _idx_values(train_x, axes=3)[:, None],  # [N, 1, H, W]
        _idx_values(train_y, axes=1).long(),  # [N]
        _idx_values(test_x, axes=3)[:, None],
        _idx_values(test_y, axes=1).long(),
    )


def _idx_values(file: File, axes: int) -> Tensor:
    """Parse an IDX file: a magic number, big-endian sizes, then bytes in row-major order."""
    magic, start = BYTES + bytes([axes]), 4 + 4 * axes
    content = file.content
    if content[:4] != magic or len(content) < start:
        raise file.refusal(
            f"is not an IDX file of bytes with {axes} axes: it begins with {content[:4].hex()!r}, "
            f"wanted {magic.hex()!r} and {axes} sizes"
        )
    shape = np.frombuffer(content, ">u4", axes, offset=4).tolist()
    if len(content) - start != math.prod(shape):
        raise file.refusal(
            f"holds {len(content) - start} values and announces {math.prod(shape)}, shape {shape}; "
            "it may be truncated"
        )
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def decode_cifar(files: Sequence[File]) -> Arrays:
    """Decode `cifar-10-python.tar.gz`: five training batches and the test batch, in official order."""
    (archive,) = files
    members = _members(archive)
    batches = [_batch(archive, name, members[name]) for name in BATCHES]
    train_x, train_y = (torch.cat(parts) for parts in zip(*batches[:-1], strict=True))
    return Arrays(train_x, train_y, *batches[-1])


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
    if not all(type(label) is int and 0 <= label < 10 for label in labels):
        raise archive.refusal(f"has a batch {name} with labels that are not integers from 0 to 9")
    return torch.from_numpy(images.reshape(-1, *SHAPE)), torch.tensor(labels)


def load_arrays_only(content: bytes) -> object:
    """Unpickle plain values and NumPy arrays without running code; strings of Python 2 become bytes."""
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


def zip_fingerprint(file: File) -> str:
    """Return the MD5 of the images' sorted names, sizes and CRC-32 sums, whatever their compression."""
    try:
        with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
            members = [member for member in archive.infolist() if MEMBER.fullmatch(member.filename)]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise file.refusal(f"is not a whole zip archive ({error})") from error
    lines = sorted(f"{member.filename} {member.file_size} {member.CRC:08x}\n" for member in members)
    return hashlib.md5("".join(lines).encode(), usedforsecurity=False).hexdigest()


def decode_jpeg(files: Sequence[File]) -> Arrays:
    """Decode CIFAR-10 from two zip archives, `train/CLASS/NNNN.jpg` and `test/CLASS/NNNN.jpg`; needs Pillow.

    This layout does not preserve the official order of the images. Here the classes take turns, in the
    alphabetical order of the official labels, so that any first images are balanced.
    """
    train, test = files
    return Arrays(*_pictures(train), *_pictures(test))


def _pictures(file: File) -> tuple[Tensor, Tensor]:
    """Decode the images, uint8 `[N, 3, 32, 32]`, and labels, int64 `[N]`, of one archive."""
    from tqdm import tqdm

    image = require_package("PIL.Image", "pillow", "decode the JPEG copy of CIFAR-10")
    size = SHAPE[1:]
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        found = [match for match in map(MEMBER.fullmatch, archive.namelist()) if match]
        found.sort(key=lambda match: match.group("number", "kind"))  # 0000 of every class, then 0001
        pixels = np.empty((len(found), *size, 3), np.uint8)
        for k, match in enumerate(tqdm(found, desc="decoding JPEG", unit=" images")):
            name = match.string
            try:
                picture = image.open(io.BytesIO(archive.read(name)), formats=("JPEG",))
                if (picture.mode, picture.size) != ("RGB", size):
                    raise ValueError(f"it is {picture.mode} {picture.size}, wanted RGB {size}")
                pixels[k] = np.frombuffer(picture.tobytes(), np.uint8).reshape(*size, 3)
            except (zipfile.BadZipFile, zlib.error, OSError, ValueError) as error:
                raise file.refusal(f"has an image {name} that cannot be read ({error})") from error
    kinds = [match["kind"] for match in found]
    labels = {kind: label for label, kind in enumerate(sorted(set(kinds)))}
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))  # [N, 3, H, W]
    return x, torch.tensor([labels[kind] for kind in kinds], dtype=torch.int64)


def decode_svhn(files: Sequence[File]) -> Arrays:
    """Decode `test_32x32.mat` of SVHN's Format 2; needs SciPy.

    There are no training images, and the file's label 10 means digit 0.
    """
    (file,) = files
    reader = require_package("scipy.io", "scipy", "read the MATLAB file of SVHN")
    try:
        content = reader.loadmat(io.BytesIO(file.content), variable_names=("X", "y"))
    except Exception as error:  # a damaged file may raise anything
        raise file.refusal(f"is not a MATLAB file that can be read ({error})") from error
    images, labels = (np.asarray(content.get(name, ())) for name in ("X", "y"))
    if images.dtype != np.uint8 or images.shape[:-1] != (32, 32, 3) or labels.shape != (images.shape[-1], 1):
        raise file.refusal(
            f"holds X {images.dtype} {images.shape} and y {labels.shape}, wanted uint8 (32, 32, 3, N) "
            "and (N, 1)"
        )
    if not np.isin(labels, range(1, 11)).all():
        raise file.refusal("has labels that are not integers from 1 to 10")
    x = torch.from_numpy(np.ascontiguousarray(images.transpose(3, 2, 0, 1)))  # [N, 3, H, W]
    y = torch.from_numpy(labels[:, 0].astype(np.int64) % 10)  # [N]
    return Arrays(x[:0], y[:0], x, y)


FORMATS = {
    "idx": Format(decode_idx, unpack=gunzip),
    "cifar": Format(decode_cifar),
    "jpeg": Format(decode_jpeg, fingerprint=zip_fingerprint),
    "svhn": Format(decode_svhn),
}
