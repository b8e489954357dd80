"""Specifications of kernels: frozen descriptions of a kernel and of its initial hyper-parameters."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from torch import Tensor

from gilib.arguments import Positive, Scale
from gilib.config import Specification
from gilib.kernels import functions
from gilib.kernels.modules import BasicKernel, CombinedKernel, KernelModule, Setting, Start
from gilib.posteriors.base import BuildContext
from gilib.validation import check_instance, check_scale

SMOOTHNESS = (0.5, 1.5, 2.5)


@dataclass(frozen=True)
class Kernel(Specification, ABC):
    """A specification of a kernel; `k1 + k2` and `k1 * k2` are kernels, too."""

    @abstractmethod
    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """Create the module of this kernel for points with `inputs` coordinates.

        Raises:
            ValueError: if a hyper-parameter, or a column, was given for other coordinates.
        """

    def on(self, *columns: int | str) -> KernelOn:
        """Return this kernel on some of the columns of X, by their numbers, from 0, or their names.

        Names are for estimators, which find them in a data frame.

        >>> import torch
        >>> kernel = (RBF().on(0, 2) + Periodic().on(1)).build(3, BuildContext())()
        >>> kernel.diagonal(torch.zeros(1, 3)).tolist()
        [2.0]
        """
        return KernelOn(self, columns)

    def numbered(self, names: Sequence[str]) -> Kernel:
        """Return this kernel with every column name replaced by its place among the names of all columns.

        Raises:
            ValueError: if the kernel is on a column that is not among `names`.
        """
        return self

    def __add__(self, other: Kernel) -> KernelSum:
        return KernelSum((*_terms(self, KernelSum), *_terms(other, KernelSum)))

    def __radd__(self, other: int) -> Kernel:
        """Return this kernel for `0 + kernel`, with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, other: Kernel) -> KernelProduct:
        return KernelProduct((*_terms(self, KernelProduct), *_terms(other, KernelProduct)))


@dataclass(frozen=True)
class RBF(Kernel):
    """The squared exponential kernel, k(x, x') = σ² exp(-½ Σ_d (x_d - x'_d)² / ℓ_d²).

    Args:
        lengthscale: initial ℓ, one number or a tuple of D, in units of the inputs.
        variance: initial σ², the squared amplitude.
        ard: whether every coordinate has its own lengthscale (automatic relevance determination).
        log_lengthscale_sd: s of the prior log ℓ_d ~ N(c, s²), where c is the same for all d and unknown.
            `gilib.fit` adds its log density to the bound. None: no prior, with which intervals are far too
            narrow if a data set has nearly as many columns as rows.

    >>> import torch
    >>> kernel = RBF(lengthscale=2.0).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[0.0], [2.0]]))
    tensor([[1.0000, 0.6065]], grad_fn=<...>)
    """

    lengthscale: Setting = 1.0
    variance: Scale = 1.0
    ard: bool = True
    log_lengthscale_sd: Positive | None = None

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        return BasicKernel(self._starts(inputs), self._function(inputs), context, self.log_lengthscale_sd)

    def _starts(self, inputs: int) -> dict[str, Start]:
        lengthscale = Start(self.lengthscale, inputs if self.ard else 1)
        return {"lengthscale": lengthscale, "variance": Start(self.variance)}

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.RBFFunction, inputs=inputs)


@dataclass(frozen=True)
class Matern(RBF):
    """The Matérn kernel, a function of r² = Σ_d (x_d - x'_d)² / ℓ_d² (Rasmussen & Williams, 2006, Eq. 4.17).

    For ν = ½ it is σ² e^-r; ν = 3/2 gives σ² (1 + √3 r) e^-√3r, and ν = 5/2 gives
    σ² (1 + √5 r + 5r²/3) e^-√5r.

    Args:
        lengthscale: as for `RBF`, and so are `variance`, `ard` and `log_lengthscale_sd`.
        smoothness: ν: 0.5, 1.5 or 2.5.

    >>> import torch
    >>> Matern(smoothness=1.5).build(2, BuildContext())().diagonal(torch.zeros(3, 2)).tolist()
    [1.0, 1.0, 1.0]
    """

    smoothness: float = 2.5

    def __post_init__(self) -> None:
        if self.smoothness not in SMOOTHNESS:
            raise ValueError(f"smoothness must be one of {SMOOTHNESS}, got {self.smoothness!r}")

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.MaternFunction, inputs=inputs, degrees=round(2 * self.smoothness))


@dataclass(frozen=True)
class RationalQuadratic(RBF):
    """The rational quadratic kernel, σ² (1 + r² / 2α)^-α with r² = Σ_d (x_d - x'_d)² / ℓ_d².

    It is a mixture of RBF kernels, and for α → ∞ the RBF kernel (Rasmussen & Williams, 2006, Eq. 4.19).

    Args:
        lengthscale: as for `RBF`, and so are `variance`, `ard` and `log_lengthscale_sd`.
        alpha: initial α.

    >>> import torch
    >>> kernel = RationalQuadratic(alpha=0.5).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.full((1, 1), 3.0**0.5)).tolist()
    [[0.5]]
    """

    alpha: Scale = 1.0

    def _starts(self, inputs: int) -> dict[str, Start]:
        return {**super()._starts(inputs), "alpha": Start(self.alpha)}

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.RationalQuadraticFunction, inputs=inputs)


@dataclass(frozen=True)
class Periodic(RBF):
    """The periodic kernel, σ² exp(-2 Σ_d sin²(π (x_d - x'_d) / p_d) / ℓ_d²) (MacKay, 1998).

    It is the RBF kernel between points on circles. `Periodic() * RBF(lengthscale)` describes a season that
    changes over the years.

    Args:
        lengthscale: initial ℓ, in units in which the circle has radius 1. `variance`, `ard` and
            `log_lengthscale_sd` are as for `RBF`.
        period: initial p, one number or a tuple of D, in units of the inputs. Start from the period that you
            expect, because the bound has local maxima at many others.

    >>> import torch
    >>> kernel = Periodic(period=0.5).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[0.5], [3.0]])).tolist()
    [[1.0, 1.0]]
    """

    period: Setting = 1.0

    def _starts(self, inputs: int) -> dict[str, Start]:
        return {**super()._starts(inputs), "period": Start(self.period, inputs)}

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.periodic, inputs=inputs)


@dataclass(frozen=True)
class Cosine(Kernel):
    """The cosine kernel, k(x, x') = Π_d cos(2π (x_d - x'_d) / p_d), whose functions are pure waves.

    It has no variance; multiply it by a kernel that has one.

    Args:
        period: initial p, one number or a tuple of D, in units of the inputs.

    >>> import torch
    >>> kernel = Cosine(period=2.0).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[1.0], [2.0]])).tolist()
    [[-1.0, 1.0]]
    """

    period: Setting = 1.0

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        function = partial(functions.CosineFunction, inputs=inputs)
        return BasicKernel({"period": Start(self.period, inputs)}, function, context)


@dataclass(frozen=True)
class White(Kernel):
    """White noise of the function: σ² between a row and itself, 0 between two rows, even if they are equal.

    Inducing points are rows, too, so the noise of an inducing output tells nothing about the noise at the
    data. Noise of the targets belongs to the likelihood; `gilib.training.Collapsed` refuses this kernel. A
    path, being a function, has the same noise at points of equal coordinates, and independent noise at points
    that are more than 1e-4 apart, in units of the inputs.

    Args:
        variance: initial σ².

    >>> import torch
    >>> (RBF() + White(0.5)).build(1, BuildContext())().gram(torch.zeros(2, 1)).tolist()
    [[1.5, 1.0], [1.0, 1.5]]
    """

    variance: Scale = 1.0

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        function = partial(functions.WhiteFunction, inputs=inputs)
        return BasicKernel({"variance": Start(self.variance)}, function, context)


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """The kernel of an infinitely wide layer of steps or rectifiers (Cho & Saul, 2009).

    With x̃ = (√v_1 x_1, ..., √v_D x_D, √b) and θ the angle between x̃ and x̃', it is σ² (1 - θ/π) at order 0
    (steps) and σ² |x̃||x̃'| (sin θ + (π - θ) cos θ)/π at order 1 (rectifiers).

    Args:
        order: 0 or 1.
        weight_variance: initial v, one number or a tuple of D.
        bias_variance: initial b.
        variance: initial σ².

    >>> import torch
    >>> kernel = ArcCosine(bias_variance=1.0).build(1, BuildContext())()
    >>> kernel.diagonal(torch.tensor([[0.0], [2.0]])).tolist()
    [1.0, 5.0]
    """

    order: int = 1
    weight_variance: Setting = 1.0
    bias_variance: Scale = 1.0
    variance: Scale = 1.0

    def __post_init__(self) -> None:
        if self.order not in (0, 1):
            raise ValueError(f"order must be 0 (steps) or 1 (rectifiers), got {self.order!r}")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        function = partial(functions.ArcCosineFunction, inputs=inputs, order=self.order)
        starts = {
            "weight_variance": Start(self.weight_variance, inputs),
            "bias_variance": Start(self.bias_variance),
            "variance": Start(self.variance),
        }
        return BasicKernel(starts, function, context)


@dataclass(frozen=True)
class DotProduct(Kernel):
    """The kernel of linear functions, k(x, x') = Σ_d v_d x_d x'_d + b: weights N(0, v_d) and bias N(0, b).

    With v_d = b = 1/(D+1) it is the kernel of a dense layer with a bias under `NealPrior` (Ober & Aitchison,
    2021, Sec. 2.4).

    Args:
        weight_variance: initial v, one number or a tuple of D.
        bias_variance: initial b; 0: no bias.

    >>> import torch
    >>> kernel = DotProduct().build(1, BuildContext())()
    >>> kernel.diagonal(torch.tensor([[0.0], [2.0]])).tolist()
    [1.0, 5.0]
    """

    weight_variance: Setting = 1.0
    bias_variance: float = 1.0

    def __post_init__(self) -> None:
        if self.bias_variance != 0:
            check_scale(self.bias_variance, "bias_variance")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        starts = {"weight_variance": Start(self.weight_variance, inputs)}
        if self.bias_variance != 0:
            starts["bias_variance"] = Start(self.bias_variance)
        return BasicKernel(starts, partial(functions.DotProductFunction, inputs=inputs), context)


@dataclass(frozen=True)
class _Combination(Kernel):
    """Several kernels, added or multiplied by `_operation`."""

    _operation: ClassVar[Callable[..., Tensor]]
    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError(f"{type(self).__name__} needs at least one kernel")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        combine = partial(functions.Combined, operation=self._operation)
        return CombinedKernel([part.build(inputs, context) for part in self.parts], combine)

    def numbered(self, names: Sequence[str]) -> Kernel:
        return replace(self, parts=tuple(part.numbered(names) for part in self.parts))


@dataclass(frozen=True)
class KernelSum(_Combination):
    """The sum of kernels, k_1 + k_2 + ..., whose functions are sums of independent functions.

    >>> RBF() + DotProduct() + Matern() == KernelSum((RBF(), DotProduct(), Matern()))
    True
    """

    _operation = operator.add


@dataclass(frozen=True)
class KernelProduct(_Combination):
    """The product of kernels, k_1 · k_2 · ..."""

    _operation = operator.mul


@dataclass(frozen=True)
class KernelOn(Kernel):
    """A kernel on some of the columns; `kernel.on(...)` is a shorter way to write it.

    Args:
        kernel: the kernel. A hyper-parameter with a value for each input has one for each of these columns.
        columns: the columns' numbers, from 0, or their names.
    """

    kernel: Kernel
    columns: tuple[int | str, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a kernel needs one column or more, and none twice, got {self.columns}")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        places = [column for column in self.columns if not isinstance(column, str)]
        if len(places) < len(self.columns) or not all(0 <= place < inputs for place in places):
            raise ValueError(
                f"a kernel on columns {self.columns} needs them among 0 ... {inputs - 1}: names are for "
                "estimators that are given a data frame"
            )
        part = self.kernel.build(len(places), context)
        return CombinedKernel([part], partial(functions.selected, columns=tuple(places)))

    def numbered(self, names: Sequence[str]) -> Kernel:
        missing = [column for column in self.columns if isinstance(column, str) and column not in names]
        if missing:
            raise ValueError(f"the kernel is on columns {missing}, but the columns are {list(names)}")
        places = [list(names).index(column) if isinstance(column, str) else column for column in self.columns]
        within = [names[place] for place in places if place < len(names)]
        return replace(self, kernel=self.kernel.numbered(within), columns=tuple(places))


def spectral_mixture(
    periods: Sequence[Setting], lengthscales: Sequence[Setting], variances: Sequence[Scale]
) -> Kernel:
    """Return Σ_q σ_q² Π_d exp(-½ (x_d - x'_d)² / ℓ_qd²) cos(2π (x_d - x'_d) / p_qd).

    Each component is an `RBF() * Cosine()` (Wilson & Adams, 2013, Eq. 12). The spectral density is a mixture
    of Gaussians with weights σ_q², means 1 / p_qd and standard deviations 1 / (2π ℓ_qd). The bound has many
    maxima, so start from the periods that the data show.

    Args:
        periods: initial p_q, for every component one number or a tuple of D.
        lengthscales: initial ℓ_q, the distance over which the waves of a component lose their phase.
        variances: initial σ_q².

    Raises:
        ValueError: if the three lists differ in length.

    >>> spectral_mixture([1.0, 0.3], [5.0, 2.0], [0.5, 0.1]).parts[1]
    KernelProduct(parts=(RBF(lengthscale=2.0, variance=0.1, ...), Cosine(period=0.3)))
    """
    components = zip(periods, lengthscales, variances, strict=True)
    return KernelSum(tuple(RBF(own, variance) * Cosine(period) for period, own, variance in components))


def _terms(kernel: Kernel, kind: type[_Combination]) -> tuple[Kernel, ...]:
    check_instance(kernel, Kernel, "a term of a kernel")
    return kernel.parts if isinstance(kernel, kind) else (kernel,)
