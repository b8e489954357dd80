"""The pixels that a convolution sees: kernel, stride, padding and boundary."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from gilib.validation import check_choice, check_count

Pair = tuple[int, int]
BOUNDARIES = ("circular", "zero")


@dataclass(frozen=True)
class Windows:
    """The windows of a convolution: one for every output pixel.

    In each direction, window u covers the pixels s u + δ - p of the image, δ = 0 ... k-1.

    Attributes:
        kernel: k, (height, width).
        stride: s, (vertical, horizontal).
        padding: p, (vertical, horizontal).
        boundary: pixels outside the image wrap around, "circular", or are zero, "zero".

    >>> Windows.of((5, 3), stride=2, padding=0, boundary="zero").output_size((9, 9))
    (3, 4)
    """

    kernel: Pair
    stride: Pair
    padding: Pair
    boundary: str

    @classmethod
    def of(
        cls,
        kernel_size: int | Pair,
        *,
        stride: int | Pair = 1,
        padding: int | Pair | None = None,
        boundary: str = "circular",
    ) -> Windows:
        """Construct from single numbers or pairs; by default padding keeps the size of an image at stride 1.

        Raises:
            ValueError: if a size is invalid, an even kernel has no padding, or the boundary is unknown.
        """
        check_choice(boundary, BOUNDARIES, "boundary")
        kernel, steps = as_pair(kernel_size, "kernel_size", 1), as_pair(stride, "stride", 1)
        if padding is None:
            if any(k % 2 == 0 for k in kernel):
                message = f"an even kernel has no centre, got kernel_size {list(kernel)}"
                raise ValueError(f"{message}: give padding, or make it odd")
            padding = (kernel[0] // 2, kernel[1] // 2)
        return cls(kernel, steps, as_pair(padding, "padding", 0), boundary)

    @property
    def pixels(self) -> int:
        """K, the number of pixels of a window."""
        return self.kernel[0] * self.kernel[1]

    @property
    def circular(self) -> bool:
        """Whether windows wrap around the image."""
        return self.boundary == "circular"

    def at_every_pixel(self, size: tuple[int, ...]) -> bool:
        """Return whether there is a window at every pixel, except those that stick out of the padded image.

        Circular windows must also be centred, and no lag may be longer than the image.
        """
        if self.stride != (1, 1):
            return False
        sides = zip(size, self.kernel, self.padding, strict=True)
        return all(2 * p == k - 1 <= n if self.circular else k - 1 - p <= n for n, k, p in sides)

    def output_size(self, size: Pair) -> Pair:
        """Return the numbers of windows (vertical, horizontal) for an image of `size`.

        Raises:
            ValueError: if the padded image is smaller than the kernel, or than its circular padding.
        """
        sides = list(zip(size, self.padding, self.kernel, self.stride, strict=True))
        if any(n + 2 * p < k for n, p, k, _ in sides):
            raise ValueError(
                f"images of {list(size)} pixels, padded by {list(self.padding)}, are smaller than the "
                f"kernel, {list(self.kernel)}: use a smaller kernel, more padding, or pool less"
            )
        if self.circular and any(n < p for n, p, _, _ in sides):
            raise ValueError(
                f"circular padding {list(self.padding)} would wrap around images of {list(size)} pixels "
                "more than once: use less padding"
            )
        height, width = ((n + 2 * p - k) // s + 1 for n, p, k, s in sides)
        return height, width


def as_pair(value: int | Pair, name: str, least: int) -> Pair:
    """Return (height, width) from a number or a pair; raise an error unless both are integers ≥ `least`."""
    pair = (value, value) if isinstance(value, Integral) else value
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"{name} must be an integer or a pair (height, width), got {value!r}")
    for entry in pair:
        check_count(entry, name, least)
    return int(pair[0]), int(pair[1])
