"""What readers of image files share: a file's content with its remedy, decoded arrays."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from gilib.data.storage import DataError


class Arrays(NamedTuple):
    """Decoded images, uint8 `[N, C, H, W]`, and labels, int64 `[N]`, for training and for testing."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


@dataclass(frozen=True)
class File:
    """The content of a file, and what to say where it is not what it should be.

    Attributes:
        origin: path or address.
        content: its bytes.
        remedy: what the reader of an error should do.
    """

    origin: str
    content: bytes
    remedy: str

    def refusal(self, problem: str, kind: type[DataError] = DataError) -> DataError:
        """The error that says what is wrong with this file.

        >>> str(File("a.gz", b"", "fetch it again").refusal("is empty"))
        'a.gz is empty: fetch it again'
        """
        return kind(f"{self.origin} {problem}: {self.remedy}")


def md5(file: File) -> str:
    """The MD5 of a file's content, by which publishers name their files.

    >>> md5(File("a", b"", ""))
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    return hashlib.md5(file.content, usedforsecurity=False).hexdigest()
