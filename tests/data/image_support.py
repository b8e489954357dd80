"""Shared by the tests of the formats of images: files in memory, and random bytes to put into them."""

import numpy as np

from gilib.data.images.files import File

REMEDY = "fetch it again"


def file(content: bytes, origin: str = "a file") -> File:
    return File(origin, content, REMEDY)


def random_bytes(*shape, seed=0, high=256):
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.uint8)
