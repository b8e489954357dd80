"""The IDX format of MNIST and Fashion-MNIST: four gzip files, images and labels, training and test."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gilib.data.images.files import Arrays, File

BYTES = b"\x00\x00\x08"  # the magic number of unsigned bytes; one more byte gives the number of axes


def gunzip(file: File) -> File:
    """Decompress a file, so that its checksum does not depend on the compression.

    Raises:
        DataError: if the file is not gzip, or is truncated or damaged.
    """
    try:
        return replace(file, content=gzip.decompress(file.content))
    except (OSError, EOFError, zlib.error) as error:
        raise file.refusal(f"is not a whole gzip file ({error})") from error


def decode(files: Sequence[File]) -> Arrays:
    """Decode unpacked training images, training labels, test images and test labels, in this order.

    Raises:
        DataError: if a file is not an IDX file of images or labels, or its length contradicts its header.
    """
    train_x, train_y, test_x, test_y = files
    return Arrays(
        _values(train_x, axes=3)[:, None],  # [N, 1, H, W]
        _values(train_y, axes=1).long(),  # [N]
        _values(test_x, axes=3)[:, None],
        _values(test_y, axes=1).long(),
    )


def _values(file: File, axes: int) -> Tensor:
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
