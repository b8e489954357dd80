"""Types that the readers of image files share: a file with its remedy, and decoded arrays."""

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
    """The content of a file, with the advice for an error about it.

    Attributes:
        origin: path or address.
        content: bytes of the file.
        remedy: how to repair the file.
    """

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
