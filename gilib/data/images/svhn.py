"""Decode the test set of SVHN, Format 2: cropped house numbers in a MATLAB file."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch

from gilib.data.images.files import Arrays, File
from gilib.optional import require_package


def decode(files: Sequence[File]) -> Arrays:
    """Decode `test_32x32.mat`; there are no training images, and the file's label 10 means digit 0.

    Raises:
        DataError: if the file is no MATLAB file, or does not hold images `X` and labels `y`.
        ImportError: if SciPy is not installed.
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
