"""Sets of labelled images: in pixels, as published, and normalised on a device."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from experiments.images.normalisation import ImageNormalisation
from gilib.arguments import Count, FloatingType, checked
from gilib.validation import check_is_tensor


def sha256_of_images(train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor) -> str:
    r"""Return the SHA-256 of decoded arrays, which depends on neither the machine nor the file format.

    The hash covers the ASCII header
    ``"train_x |u1 N C H W\ntrain_y <i8 N\ntest_x |u1 N* C H W\ntest_y <i8 N*\n"`` with the sizes in decimal,
    then the values in that order, row-major, pixels as bytes and labels as little-endian int64.

    Args:
        train_x: training images, uint8 `[N, C, H, W]`.
        train_y: training labels, int64 `[N]`.
        test_x: test images, uint8 `[N*, C, H, W]`.
        test_y: test labels, int64 `[N*]`.

    >>> x, y = torch.zeros(2, 1, 1, 1, dtype=torch.uint8), torch.tensor([0, 1])
    >>> sha256_of_images(x, y, x, y)[:16]
    '277c07e6d0facdef'
    """
    arrays = [
        np.ascontiguousarray(value.detach().cpu().numpy(), dtype=kind)
        for value, kind in ((train_x, "|u1"), (train_y, "<i8"), (test_x, "|u1"), (test_y, "<i8"))
    ]
    digest = hashlib.sha256()
    for name, array in zip(("train_x", "train_y", "test_x", "test_y"), arrays, strict=True):
        digest.update(f"{name} {array.dtype.str} {' '.join(map(str, array.shape))}\n".encode("ascii"))
    for array in arrays:
        digest.update(array.data)
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class ImageTensors:
    """A complete set of images on one device, in normalised units.

    Attributes:
        train_x: `[N, C, H, W]`.
        train_y: labels, int64 `[N]`.
        test_x: `[N*, C, H, W]`.
        test_y: labels, int64 `[N*]`.
        normalisation: the scaling of the images, on the same device.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    normalisation: ImageNormalisation


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Labelled images for training and testing, in pixels.

    Attributes:
        name: short name, for `load_images`.
        label: name of exactly these arrays in reported results, such as "CIFAR-10 (JPEG copy)".
        train_x: training images, uint8 `[N, C, H, W]`.
        train_y: training labels, int64 `[N]`.
        test_x: test images, uint8 `[N*, C, H, W]`.
        test_y: test labels, int64 `[N*]`.
        class_names: name of each class.
        normalisation: scaling by the statistics of the full training set, even if only a part of that set is
            present; None for a set without training images.
        source: authors and address of the data.
        licence: licence of the data.
        note: warnings for users of the data.

    Raises:
        TypeError: if images are not uint8, or labels not int64.
        ValueError: if shapes do not fit, or a label has no name.

    >>> import experiments.images
    >>> experiments.images.load_images("mnist-500").label
    'MNIST (first 500 training and 1000 test images)'
    """

    name: str
    label: str
    train_x: Tensor  # [N, C, H, W]
    train_y: Tensor  # [N]
    test_x: Tensor  # [N*, C, H, W]
    test_y: Tensor  # [N*]
    class_names: tuple[str, ...]
    normalisation: ImageNormalisation | None
    source: str = ""
    licence: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _check_part("train", self.train_x, self.train_y, len(self.class_names))
        _check_part("test", self.test_x, self.test_y, len(self.class_names))
        if self.train_x.shape[1:] != self.test_x.shape[1:]:
            raise ValueError(
                "training and test images must have one size, got "
                f"{tuple(self.train_x.shape[1:])} and {tuple(self.test_x.shape[1:])}"
            )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the arrays, by `sha256_of_images`."""
        return sha256_of_images(self.train_x, self.train_y, self.test_x, self.test_y)

    @checked
    def subset(self, first: Count, first_test: Count | None = None) -> ImageDataset:
        """Return the first training images with all test images, or with the first of these.

        The normalisation is still that of the full training set.

        Args:
            first: number of training images.
            first_test: number of test images; all if not given.

        Raises:
            ValueError: if a number is not a positive integer, or there are not that many images.

        >>> import experiments.images
        >>> experiments.images.load_images("mnist-500").subset(first=100).train_x.shape
        torch.Size([100, 1, 28, 28])
        """
        for part, wanted, there in (("training", first, self.train_x), ("test", first_test, self.test_x)):
            if wanted is not None and wanted > len(there):
                raise ValueError(f"{self.name} has {len(there)} {part} images, got {wanted}: ask for as many")
        text = "training images" if first_test is None else f"training and {first_test} test images"
        return replace(
            self,
            label=f"{self.label} (first {first} {text})",
            train_x=self.train_x[:first].clone(),
            train_y=self.train_y[:first].clone(),
            test_x=self.test_x[:first_test].clone(),
            test_y=self.test_y[:first_test].clone(),
        )

    @checked
    def tensors(
        self,
        device: torch.device | str | None = None,
        dtype: FloatingType = torch.float32,
        normalisation: ImageNormalisation | None = None,
    ) -> ImageTensors:
        """Move the complete set to a device as bytes and normalise it there.

        Args:
            device: device of the tensors; the CPU if not given.
            dtype: dtype of the normalised images.
            normalisation: scaling to use instead of this set's own. For out-of-distribution images pass the
                normalisation of the set on which the network was trained.

        Raises:
            TypeError: if `dtype` is not a floating-point type.
            ValueError: if there is no normalisation, or it has another number of channels.

        >>> import experiments.images
        >>> experiments.images.load_images("mnist-500").tensors("cpu").test_x.dtype
        torch.float32
        """
        chosen = self.normalisation if normalisation is None else normalisation
        if chosen is None:
            lacks, advice = "normalisation", "ImageNormalisation.fit(train_x)"
            if not len(self.train_x):
                lacks = "training images to normalise by"
                advice = "trained.normalisation, of what a network learned from"
            raise ValueError(f"{self.name} has no {lacks}: pass normalisation={advice}")
        chosen = chosen.to(device)
        return ImageTensors(
            train_x=chosen.x(self.train_x.to(device), dtype),
            train_y=self.train_y.to(device),
            test_x=chosen.x(self.test_x.to(device), dtype),
            test_y=self.test_y.to(device),
            normalisation=chosen,
        )


def _check_part(part: str, x: Tensor, y: Tensor, num_classes: int) -> None:
    check_is_tensor(x, f"{part}_x")
    check_is_tensor(y, f"{part}_y")
    if x.dtype != torch.uint8 or y.dtype != torch.int64:
        raise TypeError(f"{part}_x must be uint8 and {part}_y int64, got {x.dtype} and {y.dtype}")
    if x.dim() != 4 or y.shape != x.shape[:1]:
        raise ValueError(
            f"{part}_x must be [N, C, H, W] and {part}_y [N] with the same N, got {tuple(x.shape)} and "
            f"{tuple(y.shape)}"
        )
    if len(y) and not (int(y.min()) >= 0 and int(y.max()) < num_classes):
        raise ValueError(
            f"{part}_y must hold labels from 0 to {num_classes - 1}, one for each class name, got "
            f"{int(y.min())} to {int(y.max())}"
        )
