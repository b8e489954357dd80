"""Decode CIFAR-10 from JPEG files in two zip archives, `train/CLASS/NNNN.jpg` and `test/CLASS/NNNN.jpg`."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gilib.data.images.files import Arrays, File
from gilib.optional import require_package

MEMBER = re.compile(r"(?:train|test)/(?P<kind>\w+)/(?P<number>\d{4})\.jpg")
SIZE = 32


def fingerprint(file: File) -> str:
    """Return the MD5 of the images' sorted names, sizes and CRC-32 sums, whatever their compression.

    The images are not unpacked.

    Raises:
        DataError: if the file is not a zip archive, or is truncated.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
            members = [member for member in archive.infolist() if MEMBER.fullmatch(member.filename)]
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise file.refusal(f"is not a whole zip archive ({error})") from error
    lines = sorted(f"{member.filename} {member.file_size} {member.CRC:08x}\n" for member in members)
    return hashlib.md5("".join(lines).encode(), usedforsecurity=False).hexdigest()


def decode(files: Sequence[File]) -> Arrays:
    """Decode `train.zip` and `test.zip`.

    This layout does not preserve the official order of the images. Here the classes take turns, in the
    alphabetical order of the official labels, so that any first images are balanced.

    Raises:
        DataError: if an archive or an image is damaged, or an image is not 32 × 32 in RGB.
        ImportError: if Pillow is not installed.
    """
    train, test = files
    return Arrays(*_images(train), *_images(test))


def _images(file: File) -> tuple[Tensor, Tensor]:
    """Decode the images, uint8 `[N, 3, 32, 32]`, and labels, int64 `[N]`, of one archive."""
    from tqdm import tqdm

    image = require_package("PIL.Image", "pillow", "decode the JPEG copy of CIFAR-10")
    with zipfile.ZipFile(io.BytesIO(file.content)) as archive:
        names = _in_turn(archive.namelist())
        pixels = np.empty((len(names), SIZE, SIZE, 3), np.uint8)
        for k, name in enumerate(tqdm(names, desc="decoding JPEG", unit=" images")):
            try:
                picture = image.open(io.BytesIO(archive.read(name)), formats=("JPEG",))
                if (picture.mode, picture.size) != ("RGB", (SIZE, SIZE)):
                    raise ValueError(f"it is {picture.mode} {picture.size}, wanted RGB {(SIZE, SIZE)}")
                pixels[k] = np.frombuffer(picture.tobytes(), np.uint8).reshape(SIZE, SIZE, 3)
            except (zipfile.BadZipFile, zlib.error, OSError, ValueError) as error:
                raise file.refusal(f"has an image {name} that cannot be read ({error})") from error
    kinds = [name.split("/")[1] for name in names]
    labels = {kind: label for label, kind in enumerate(sorted(set(kinds)))}
    x = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))  # [N, 3, H, W]
    return x, torch.tensor([labels[kind] for kind in kinds], dtype=torch.int64)


def _in_turn(names: Sequence[str]) -> list[str]:
    """Sort the images among `names`: number 0000 of every class, then 0001 of every class, and so on."""
    found = [match for match in map(MEMBER.fullmatch, names) if match]
    return [match.string for match in sorted(found, key=lambda match: match.group("number", "kind"))]
