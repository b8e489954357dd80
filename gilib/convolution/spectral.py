"""Correlations of sets of images at the lags within a kernel, by products of Fourier coefficients.

    R_xx[d, c, c'] = Σ_b λ_b Σ_u X_bc(u) X_bc'(u + d)      R_xy[l, c, o] = Σ_b λ_b Σ_u X_bc(u + l) Y_bo(u)

With coefficients X̂ = A + iB and Ŷ = P + iQ at each frequency, R is linear in AᵀA + BᵀB and AᵀB - BᵀA, and in
AᵀP + BᵀQ and AᵀQ - BᵀP. The adjoint is linear in the same coefficients, which are computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.convolution.images import at_once
from gilib.convolution.windows import Pair
from gilib.linalg.blocks import pieces

CHUNK = 2**20  # coefficients of x in memory at a time: 4 MB in float32
FEWEST = 24  # images at a time, at least, so that matrix products stay efficient
SHARE = 0.5  # limit of these coefficients on a CPU, as a multiple of the entries of x
BLOCK = 2**18  # entries of the products of coefficients in memory at a time: 1 MB in float32


@dataclass(frozen=True)
class SpectralCorrelation:
    """Correlations of images x with themselves at lags 1-k ... k-1, with images y at lags -p ... k-1-p."""

    transform: Transform  # the Fourier transform
    # waves at half of the lags of x with itself, `[2, n, F]`; the others follow from R_xx[-d] = R_xx[d]ᵀ
    auto: Tensor
    cross: Tensor  # waves at all lags of x with y, `[2, m, F]`
    share: Tensor  # weight of each frequency, `[F]`

    @classmethod
    def of(cls, x: Tensor, kernel: Pair, padding: Pair, circular: bool) -> SpectralCorrelation:
        """Construct for images like `x`; unless these wrap around, the period is long enough for all lags."""
        transform = Transform(cls.circle(x.shape[-2:], kernel, padding, circular))
        auto = _grid([torch.arange(1 - k, k, device=x.device) for k in kernel])
        cross = _grid([p - torch.arange(k, device=x.device) for k, p in zip(kernel, padding, strict=True)])
        down, across = (lag[: len(lag) // 2 + 1] for lag in auto)
        half, whole = transform.waves(down, across, x), transform.waves(*cross, x)
        return cls(transform, half, whole, transform.share(x))

    @staticmethod
    def circle(size: tuple[int, ...], kernel: Pair, padding: Pair, circular: bool) -> Pair:
        """Return a period of pixels around which the lags of images of `size` do not overlap."""
        height, width = (
            n if circular else fast_length(n + max(k - 1, p, 2 * p - k + 1))
            for n, k, p in zip(size, kernel, padding, strict=True)
        )
        return height, width

    def __call__(self, x: Tensor, y: Tensor | None, root: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return R_xx `[2n - 1, G, C, C]` and R_xy `[m, G, C, O]` (None without y) of G sets of images.

        x is `[G, B, C, H, W]`, y `[G, B, O, H', W']` or None, and `root` holds √λ, `[B]`, or is None.
        """
        shape, to_auto, to_cross = (len(x), x.shape[2], -1), self.auto * self.share, self.cross * self.share
        auto, skew = x.new_zeros(2, self.auto.shape[1], len(x) * x.shape[2] ** 2)
        cross = None if y is None else x.new_zeros(self.cross.shape[1], len(x) * x.shape[2] * y.shape[2])
        for x_hat, y_hat, _, _ in self._coefficients(x, y, root):
            for block in self._blocks(x_hat, y_hat):
                a, b = x_hat[:, block].flatten(1, 2)  # [f G, B, C]
                _accumulate(auto, to_auto[0, :, block], (a.mT @ a).baddbmm_(b.mT, b))
                _accumulate(skew, to_auto[1, :, block], a.mT @ b)
                if y_hat is not None and cross is not None:
                    p, q = y_hat[:, block].flatten(1, 2)
                    _accumulate(cross, to_cross[0, :, block], (a.mT @ p).baddbmm_(b.mT, q))
                    _accumulate(cross, to_cross[1, :, block], (a.mT @ q).baddbmm_(b.mT, p, alpha=-1))
        # AᵀA + BᵀB is symmetric and AᵀB - BᵀA antisymmetric: one product AᵀB gives the latter
        auto, skew = (part.unflatten(1, shape) for part in (auto, skew))
        half = auto + skew - skew.mT
        whole = torch.cat([half, half[:-1].flip(0).mT])
        return whole, None if cross is None else cross.unflatten(1, shape)

    def write_adjoint(
        self,
        x: Tensor,
        y: Tensor | None,
        root: Tensor | None,
        d_auto: Tensor,
        d_cross: Tensor,
        d_x: Tensor,
        d_y: Tensor | None,
    ) -> None:
        """Write the gradients of x and y, given those of R_xx and R_xy, to `d_x` and `d_y`."""
        half = d_auto[: len(d_auto) // 2 + 1].clone()
        half[:-1] += d_auto[len(half) :].flip(0).mT
        even, odd = half + half.mT, half - half.mT  # gradients of the symmetric and antisymmetric parts
        for x_hat, y_hat, part, weights in self._coefficients(x, y, root):
            for block in self._blocks(x_hat, y_hat):
                a, b = x_hat[:, block].flatten(1, 2)  # [f G, B, C]
                g, n = _products(self.auto[:, :, block], even, odd)
                d_a = (a @ g).baddbmm_(b, n, alpha=-1)
                d_b = (b @ g).baddbmm_(a, n)
                if y_hat is not None:
                    p, q = y_hat[:, block].flatten(1, 2)
                    g, n = _products(self.cross[:, :, block], d_cross, d_cross)
                    d_a.baddbmm_(p, g.mT).baddbmm_(q, n.mT)
                    d_b.baddbmm_(q, g.mT).baddbmm_(p, n.mT, alpha=-1)
                    torch.bmm(a, g, out=p).baddbmm_(b, n, alpha=-1)
                    torch.bmm(b, g, out=q).baddbmm_(a, n)
                a.copy_(d_a)  # gradients replace coefficients, to be transformed back without new memory
                b.copy_(d_b)
            d_x[:, part] = self.transform.inverse(x_hat, weights, x.shape[-2:])
            if y is not None and y_hat is not None and d_y is not None:
                d_y[:, part] = self.transform.inverse(y_hat, weights, y.shape[-2:])

    def _coefficients(
        self, x: Tensor, y: Tensor | None, root: Tensor | None
    ) -> Iterator[tuple[Tensor, Tensor | None, slice, Tensor | None]]:
        """Yield coefficients of a few images at a time, the slice of images, and their weights."""
        per_image = 2 * self.auto.shape[-1] * len(x) * x.shape[2]
        step = max(1, at_once(max(CHUNK, FEWEST * per_image), x, SHARE) // per_image)
        for part in pieces(x.shape[1], step):
            weights = None if root is None else root[part]
            x_hat = self.transform.coefficients(x[:, part], weights)
            y_hat = None if y is None else self.transform.coefficients(y[:, part], weights)
            yield x_hat, y_hat, part, weights

    @staticmethod
    def _blocks(x_hat: Tensor, y_hat: Tensor | None) -> Iterator[slice]:
        _, count, sets, _, channels = x_hat.shape
        columns = channels if y_hat is None else max(channels, y_hat.shape[-1])
        step = max(1, at_once(BLOCK, x_hat, 1.0) // (sets * channels * columns))
        return pieces(count, step)


def _accumulate(total: Tensor, waves: Tensor, products: Tensor) -> None:
    """Add to `total` the lags `[n, G C C']` of products of coefficients `[f G, C, C']`."""
    total.addmm_(waves, products.view(waves.shape[1], -1))


def _products(waves: Tensor, real: Tensor, imaginary: Tensor) -> tuple[Tensor, ...]:
    """Return gradients of products of coefficients `[f G, C, C']`, before `share`, given those of lags."""
    parts = zip(waves, (real, imaginary), strict=True)
    return tuple((wave.mT @ part.flatten(1)).view(-1, *part.shape[-2:]) for wave, part in parts)


def _grid(axes: list[Tensor]) -> tuple[Tensor, Tensor]:
    vertical, horizontal = torch.meshgrid(*axes, indexing="ij")
    return vertical.flatten().double(), horizontal.flatten().double()


def fast_length(least: int) -> int:
    """Return the smallest even number ≥ `least` without prime factors above 7 (or 1), for fast transforms."""
    length = least
    while length > 1 and (length % 2 or 210**8 % length):
        length += 1
    return length


@dataclass(frozen=True)
class Transform:
    """The discrete Fourier transform X̂(ω) = Σ_u X(u) exp(-i ω·u) of periodic real images, and its adjoint."""

    size: Pair  # pixels of one period, (height, width), at least those of the images

    @property
    def frequencies(self) -> Pair:
        """Numbers of vertical frequencies, and of half the horizontal ones, which run fastest."""
        return self.size[0], self.size[1] // 2 + 1

    def coefficients(self, images: Tensor, root: Tensor | None) -> Tensor:
        """Return real and imaginary parts `[2, F, G, B, C]` of the coefficients of images `[G, B, C, H, W]`.

        The images are multiplied by `root`, `[B]`, unless it is None.
        """
        weighted = images if root is None else images * root[:, None, None, None]
        if self.size[0] > 1:
            spectrum = torch.fft.rfft2(weighted, s=self.size)
        else:
            spectrum = torch.fft.rfft(weighted, n=self.size[1])
        return torch.view_as_real(spectrum).permute(5, 3, 4, 0, 1, 2).contiguous().flatten(1, 2)

    def inverse(self, coefficients: Tensor, root: Tensor | None, size: torch.Size) -> Tensor:
        """Return weighted images with these coefficients; with `share` the adjoint of `coefficients`."""
        spectrum = torch.view_as_complex(coefficients.permute(2, 3, 4, 1, 0).contiguous())
        spectrum = spectrum.unflatten(3, self.frequencies)
        if self.size[0] > 1:
            spectrum = torch.fft.ifft(spectrum, dim=-2)[..., : size[0], :]
        images = torch.fft.irfft(spectrum, n=self.size[1])[..., : size[1]]
        return images if root is None else images * root[:, None, None, None]

    def share(self, like: Tensor) -> Tensor:
        """Return the weight of each frequency in the inverse transform, with its mirror image, `[F]`."""
        rows, columns = self.frequencies
        column = torch.arange(columns, device=like.device)
        alone = (column == 0) | (2 * column == self.size[1])
        return ((2.0 - alone.to(like.dtype)) / math.prod(self.size)).repeat(rows)

    def waves(self, vertical: Tensor, horizontal: Tensor, like: Tensor) -> Tensor:
        """Return cos and -sin of ω·d, `[2, n, F]`, at n lags d, given by their coordinates `[n]`.

        They map coefficients, times `share`, to values at d; `like` determines dtype and device.
        """
        rows, columns = (
            torch.arange(count, dtype=torch.float64, device=like.device) * (2.0 * math.pi / pixels)
            for count, pixels in zip(self.frequencies, self.size, strict=True)
        )
        angles = (vertical[:, None, None] * rows[:, None] + horizontal[:, None, None] * columns).flatten(1)
        return torch.stack([angles.cos(), -angles.sin()]).to(like.dtype)
