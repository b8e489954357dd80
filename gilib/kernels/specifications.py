"""Kernels as frozen specifications: what they are, and where their hyper-parameters start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real

from gilib.arguments import Positive, Scale
from gilib.config import Specification
from gilib.kernels import functions
from gilib.kernels.modules import BasicKernel, CombinedKernel, KernelModule, Setting, Start
from gilib.posteriors.base import BuildContext
from gilib.validation import check_instance, check_scale

SMOOTHNESS = (0.5, 1.5, 2.5)


@dataclass(frozen=True)
class Kernel(Specification, ABC):
    """A specification of a kernel; `k1 + k2` and `k1 * k2` are kernels too."""

    @abstractmethod
    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """The module for points of `inputs` coordinates.

        Raises:
            ValueError: if a hyper-parameter is given for another number of coordinates.
        """

    def on(self, *columns: int | str) -> KernelOn:
        """This kernel of some of the columns, which others call `active_dims`: by number, or by name.

        Names are for estimators that are given a data frame.

        >>> import torch
        >>> kernel = (RBF().on(0, 2) + Periodic().on(1)).build(3, BuildContext())()
        >>> kernel.diagonal(torch.zeros(1, 3)).tolist()
        [2.0]
        """
        return KernelOn(self, columns)

    def numbered(self, names: Sequence[str]) -> Kernel:
        """This kernel with numbers for the names of columns.

        Raises:
            ValueError: for a name that is not among `names`.
        """
        return self

    def __add__(self, other: Kernel) -> KernelSum:
        """The sum of two kernels."""
        return KernelSum((*_terms(self, KernelSum), *_terms(other, KernelSum)))

    def __radd__(self, other: int) -> Kernel:
        """Zero and a kernel, with which `sum` begins."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, other: Kernel) -> KernelProduct:
        """The product of two kernels."""
        return KernelProduct((*_terms(self, KernelProduct), *_terms(other, KernelProduct)))


@dataclass(frozen=True)
class RBF(Kernel):
    """k(x, x') = σ² exp(-½ Σ_d (x_d - x'_d)² / ℓ_d²), the squared exponential.

    Args:
        lengthscale: ℓ at the start, one number or D of them, in units of the inputs.
        variance: σ² at the start, the squared amplitude.
        ard: whether every coordinate has its own lengthscale (automatic relevance determination).
        log_lengthscale_sd: s of the prior log ℓ_d ~ N(c, s²) with any c, the same for all d, whose log
            density `gilib.fit` adds to the bound; None: the bound alone decides. Where columns are nearly as
            many as rows its maximum takes noise for signal, and intervals come out far too narrow.

    >>> import torch
    >>> kernel = RBF(lengthscale=2.0).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[0.0], [2.0]]))
    tensor([[1.0000, 0.6065]], grad_fn=<...>)
    """

    lengthscale: Setting = 1.0
    variance: Scale = 1.0
    ard: bool = True
    log_lengthscale_sd: Positive | None = None

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        _check_setting(self.lengthscale, "lengthscale")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """Lengthscales and a variance."""
        return BasicKernel(self._starts(inputs), self._function(inputs), context, self.log_lengthscale_sd)

    def _starts(self, inputs: int) -> dict[str, Start]:
        """Of all hyper-parameters."""
        lengthscale = Start(self.lengthscale, inputs if self.ard else 1)
        return {"lengthscale": lengthscale, "variance": Start(self.variance)}

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.RBFFunction, inputs=inputs)


@dataclass(frozen=True)
class Matern(RBF):
    """The Matérn kernel, r² = Σ_d (x_d - x'_d)² / ℓ_d² (Rasmussen & Williams, 2006, Eq. 4.17).

    ν = ½: σ² e^-r;  3/2: σ² (1 + √3 r) e^-√3r;  5/2: σ² (1 + √5 r + 5r²/3) e^-√5r.

    Args:
        lengthscale: as for `RBF`; `variance`, `ard` and `log_lengthscale_sd` likewise.
        smoothness: ν, 0.5, 1.5 or 2.5; by name, as the first setting is the lengthscale.

    >>> import torch
    >>> Matern(smoothness=1.5).build(2, BuildContext())().diagonal(torch.zeros(3, 2)).tolist()
    [1.0, 1.0, 1.0]
    """

    smoothness: float = 2.5

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        super().__post_init__()
        if self.smoothness not in SMOOTHNESS:
            raise ValueError(f"smoothness must be one of {SMOOTHNESS}, got {self.smoothness!r}")

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.MaternFunction, inputs=inputs, degrees=round(2 * self.smoothness))


@dataclass(frozen=True)
class RationalQuadratic(RBF):
    """k(x, x') = σ² (1 + r² / 2α)^-α, r² = Σ_d (x_d - x'_d)² / ℓ_d²: RBF kernels of many lengthscales, mixed.

    The smaller α, the more lengthscales; α → ∞ is the RBF kernel (Rasmussen & Williams, 2006, Eq. 4.19).

    Args:
        lengthscale: as for `RBF`; `variance`, `ard` and `log_lengthscale_sd` likewise.
        alpha: α at the start; by name, as the first setting is the lengthscale.

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
    """k(x, x') = σ² exp(-2 Σ_d sin²(π (x_d - x'_d) / p_d) / ℓ_d²): functions that repeat (MacKay, 1998).

    It is the RBF kernel of points on circles. `Periodic() * RBF(lengthscale)` is of a season that changes.

    Args:
        lengthscale: ℓ at the start, beside the unit circle; `variance`, `ard`, `log_lengthscale_sd` as for
            `RBF`.
        period: p at the start, one number or D of them, in units of the inputs; by name, as the first setting
            is the lengthscale. Start it where you know it to be: the bound has a maximum for many a period.

    >>> import torch
    >>> kernel = Periodic(period=0.5).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[0.5], [3.0]])).tolist()
    [[1.0, 1.0]]
    """

    period: Setting = 1.0

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        super().__post_init__()
        _check_setting(self.period, "period")

    def _starts(self, inputs: int) -> dict[str, Start]:
        return {**super()._starts(inputs), "period": Start(self.period, inputs)}

    def _function(self, inputs: int) -> Callable[..., functions.KernelFunction]:
        return partial(functions.periodic, inputs=inputs)


@dataclass(frozen=True)
class Cosine(Kernel):
    """k(x, x') = Π_d cos(2π (x_d - x'_d) / p_d): pure waves.

    It has no variance of its own: multiply it. A sum of products with `RBF` is a `spectral_mixture`.

    Args:
        period: p at the start, one number or D of them, in units of the inputs.

    >>> import torch
    >>> kernel = Cosine(period=2.0).build(1, BuildContext())()
    >>> kernel.cross(torch.zeros(1, 1), torch.tensor([[1.0], [2.0]])).tolist()
    [[-1.0, 1.0]]
    """

    period: Setting = 1.0

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        _check_setting(self.period, "period")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """Periods."""
        function = partial(functions.CosineFunction, inputs=inputs)
        return BasicKernel({"period": Start(self.period, inputs)}, function, context)


@dataclass(frozen=True)
class White(Kernel):
    """k = σ² for a row and itself, 0 for two rows, even of the same coordinates: noise of the function.

    An inducing point is a row like any other: its output has noise of its own, which tells nothing of the
    noise of the data. Lindinger et al. (2020) take 1e-3 of it in hidden layers. Where all noise is noise of
    the targets the likelihood has it, and learns it better: `gilib.training.Collapsed` refuses this kernel.
    Along the path of a draw, points of the same coordinates share their noise, so that it is a function, and
    those 1e-4 apart, in units of the inputs, have noise of their own.

    Args:
        variance: σ² at the start.

    >>> import torch
    >>> (RBF() + White(0.5)).build(1, BuildContext())().gram(torch.zeros(2, 1)).tolist()
    [[1.5, 1.0], [1.0, 1.5]]
    """

    variance: Scale = 1.0

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """A variance."""
        function = partial(functions.WhiteFunction, inputs=inputs)
        return BasicKernel({"variance": Start(self.variance)}, function, context)


@dataclass(frozen=True)
class ArcCosine(Kernel):
    """The kernel of an infinitely wide layer of rectifiers or steps (Cho & Saul, 2009).

    With x̃ = (√v_1 x_1, ..., √v_D x_D, √b) and θ the angle between x̃ and x̃': k = 1 - θ/π for order 0 (steps),
    k = |x̃||x̃'| (sin θ + (π - θ) cos θ)/π for order 1 (rectifiers), each times σ².

    Args:
        order: 0 or 1.
        weight_variance: v at the start, one number or D of them.
        bias_variance: b at the start.
        variance: σ² at the start.

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
        """Refuse unsuitable settings."""
        if self.order not in (0, 1):
            raise ValueError(f"order must be 0 (steps) or 1 (rectifiers), got {self.order!r}")
        _check_setting(self.weight_variance, "weight_variance")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """Variances."""
        function = partial(functions.ArcCosineFunction, inputs=inputs, order=self.order)
        starts = {
            "weight_variance": Start(self.weight_variance, inputs),
            "bias_variance": Start(self.bias_variance),
            "variance": Start(self.variance),
        }
        return BasicKernel(starts, function, context)


@dataclass(frozen=True)
class DotProduct(Kernel):
    """k(x, x') = Σ_d v_d x_d x'_d + b: linear functions, weights N(0, v_d) and bias N(0, b).

    With v_d = b = 1/(D+1) it is the kernel of a dense layer with a bias under `NealPrior` (Ober & Aitchison,
    2021, Sec. 2.4).

    Args:
        weight_variance: v at the start, one number or D of them.
        bias_variance: b at the start; 0: no bias.

    >>> import torch
    >>> kernel = DotProduct().build(1, BuildContext())()
    >>> kernel.diagonal(torch.tensor([[0.0], [2.0]])).tolist()
    [1.0, 5.0]
    """

    weight_variance: Setting = 1.0
    bias_variance: float = 1.0

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        _check_setting(self.weight_variance, "weight_variance")
        if self.bias_variance != 0:
            check_scale(self.bias_variance, "bias_variance")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """Variances."""
        function = functions.DotProductFunction
        starts = {"weight_variance": Start(self.weight_variance, inputs)}
        if self.bias_variance == 0:
            return BasicKernel(starts, partial(function, inputs=inputs, bias_variance=None), context)
        return BasicKernel(
            {**starts, "bias_variance": Start(self.bias_variance)}, partial(function, inputs=inputs), context
        )


@dataclass(frozen=True)
class _Combination(Kernel):
    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError(f"{type(self).__name__} needs at least one kernel")

    def numbered(self, names: Sequence[str]) -> Kernel:
        """All parts."""
        return replace(self, parts=tuple(part.numbered(names) for part in self.parts))


@dataclass(frozen=True)
class KernelSum(_Combination):
    """k_1 + k_2 + ...: the sum of independent functions.

    Args:
        parts: the kernels.

    >>> RBF() + DotProduct() + Matern() == KernelSum((RBF(), DotProduct(), Matern()))
    True
    """

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """The parts."""
        return CombinedKernel([part.build(inputs, context) for part in self.parts], functions.SumFunction)


@dataclass(frozen=True)
class KernelProduct(_Combination):
    """k_1 · k_2 · ...

    Args:
        parts: the kernels.
    """

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """The parts."""
        return CombinedKernel([part.build(inputs, context) for part in self.parts], functions.ProductFunction)


@dataclass(frozen=True)
class KernelOn(Kernel):
    """A kernel of some of the columns; `kernel.on(...)` is shorter.

    Args:
        kernel: of these columns: hyper-parameters with a value for each input have one for each of them.
        columns: by number, from 0, or by name.
    """

    kernel: Kernel
    columns: tuple[int | str, ...]

    def __post_init__(self) -> None:
        """Refuse no columns, and one twice."""
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise ValueError(f"a kernel needs columns that differ, at least one, got {self.columns}")

    def build(self, inputs: int, context: BuildContext) -> KernelModule:
        """The kernel, for so many columns.

        Raises:
            ValueError: for a column that is not there, and for names.
        """
        places = [column for column in self.columns if not isinstance(column, str)]
        if len(places) < len(self.columns) or not all(0 <= place < inputs for place in places):
            raise ValueError(
                f"a kernel on columns {self.columns} needs them among 0 ... {inputs - 1}: names are for "
                "estimators that are given a data frame"
            )
        part = self.kernel.build(len(places), context)
        return CombinedKernel([part], partial(_selected, columns=tuple(places)))

    def numbered(self, names: Sequence[str]) -> Kernel:
        """Names as numbers, here and within."""
        missing = [column for column in self.columns if isinstance(column, str) and column not in names]
        if missing:
            raise ValueError(f"the kernel is on columns {missing}, and there are {list(names)}")
        places = [list(names).index(column) if isinstance(column, str) else column for column in self.columns]
        within = [names[place] for place in places if place < len(names)]
        return replace(self, kernel=self.kernel.numbered(within), columns=tuple(places))


def spectral_mixture(
    periods: Sequence[Setting], lengthscales: Sequence[Setting], variances: Sequence[Scale]
) -> Kernel:
    """Σ_q σ_q² Π_d exp(-½ (x_d - x'_d)² / ℓ_qd²) cos(2π (x_d - x'_d) / p_qd) (Wilson & Adams, 2013, Eq. 12).

    The spectral density of this sum of `RBF() * Cosine()` is a mixture of Gaussians with weights σ_q², means
    1 / p_qd and deviations 1 / (2π ℓ_qd); of enough of them it is any. The bound has many maxima: start the
    periods where the data show them.

    Args:
        periods: p_q at the start, for every component one number or D of them.
        lengthscales: ℓ_q at the start, over which a wave of this component loses its phase.
        variances: σ_q² at the start.

    Raises:
        ValueError: if these are not equally many.

    >>> spectral_mixture([1.0, 0.3], [5.0, 2.0], [0.5, 0.1]).parts[1]
    KernelProduct(parts=(RBF(lengthscale=2.0, variance=0.1, ...), Cosine(period=0.3)))
    """
    components = zip(periods, lengthscales, variances, strict=True)
    return KernelSum(tuple(RBF(own, variance) * Cosine(period) for period, own, variance in components))


def _selected(
    parts: tuple[functions.KernelFunction, ...], columns: tuple[int, ...]
) -> functions.KernelFunction:
    return functions.Warped(parts[0], functions.Select(columns))


def _terms(kernel: Kernel, kind: type[_Combination]) -> tuple[Kernel, ...]:
    check_instance(kernel, Kernel, "a term of a kernel")
    return kernel.parts if isinstance(kernel, kind) else (kernel,)


def _check_setting(value: Setting, name: str) -> None:
    if not isinstance(value, Real | tuple) or (isinstance(value, tuple) and not value):
        raise TypeError(f"{name} must be a number, or a tuple of one for every input, got {value!r}")
