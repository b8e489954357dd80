"""Posteriors from inducing points: Bayesian linear regression from features onto learned pseudo-outputs.

    Q(W | Φ) ∝ Π_o N(w_o; 0, P⁻¹) N(v_o; Φ w_o, Λ_o⁻¹)        (Ober & Aitchison, 2021, Eq. 11)

Global: Φ are the features of inducing points propagated from the input, so that layers depend on each other.
Local: Φ is a parameter of the layer, so that they do not. Nothing else differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from gilib.dual_regression import DualWeightPosterior, regress_dual
from gilib.linalg import SymmetricOperator, readable
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.regression import WeightPosterior, regress
from gilib.statistics import Statistics, full_statistics, per_output_statistics, shared_statistics
from gilib.validation import choice, count, positive

FEW = 3  # FEW · M ≤ I: solve the M × M system; measured, 1.1 to 5 times as fast at I = 3 M, 1.0 to 3 at 2 M
HARD = 1e5  # condition numbers above which "auto" factorises in float64
PRECISIONS = ("shared", "per_output", "full")
FACTOR_DTYPES = {"auto": None, "parameters": None, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class GlobalInducing(Posterior):
    """Global inducing points: regression from what the layers below drew (Ober & Aitchison, 2021, Sec. 2.1).

    Args:
        precision: of the pseudo-outputs: "shared", one per inducing point; "per_output", one per inducing
            point and output; "full", a matrix over inducing points (its Cholesky factor is learned).
        log_precision: where the log-precisions start; None: -4, and 0 in the last layer (App. O).
        log_precision_scale: the factor by which the stored parameter is multiplied (App. H, App. O).
        factor_dtype: in which arithmetic statistics and factorisation are done: "parameters" (that of the
            parameters), "float32", "float64", or "auto": float64 under priors that let features grow and,
            on the CPU, wherever the condition number may exceed 1e5; else as "parameters".

    >>> GlobalInducing(precision="per_output").short
    'gi'
    """

    short: ClassVar[str] = "gi"
    precision: str = "shared"
    log_precision: float | None = None
    log_precision_scale: float = 3.0
    factor_dtype: str = "auto"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        choice(self.precision, PRECISIONS, "precision")
        choice(self.factor_dtype, FACTOR_DTYPES, "factor_dtype")
        positive(self.log_precision_scale, "log_precision_scale")

    def build(
        self, fan_in: int, outputs: int, bias: bool, well_scaled: bool, context: BuildContext
    ) -> PosteriorModule:
        """Pseudo-outputs `[R, M, O]` and log-precisions."""
        if context.num_inducing is None:
            raise ValueError(
                "GlobalInducing needs inducing points: give the network inducing_points of shape [M, D], "
                "or the layer num_inducing=M"
            )
        dtype = _factor_dtype(self.factor_dtype, well_scaled)
        return InducingWeights(self, None, context.num_inducing, outputs, dtype, context)


@dataclass(frozen=True)
class LocalInducing(Posterior):
    """Local inducing points: regression from the layer's own, learned features (ibid., Sec. 2.4).

    Args:
        num_inducing: M of this layer; None: as many as the network's inducing points, or the fan-in without
            any.
        precision: as for `GlobalInducing`.
        log_precision: as for `GlobalInducing`.
        log_precision_scale: as for `GlobalInducing`.
        factor_dtype: as for `GlobalInducing`.

    >>> LocalInducing(num_inducing=100).num_inducing
    100
    """

    short: ClassVar[str] = "li"
    num_inducing: int | None = None
    precision: str = "shared"
    log_precision: float | None = None
    log_precision_scale: float = 3.0
    factor_dtype: str = "auto"

    def __post_init__(self) -> None:
        """Refuse unsuitable settings."""
        choice(self.precision, PRECISIONS, "precision")
        choice(self.factor_dtype, FACTOR_DTYPES, "factor_dtype")
        positive(self.log_precision_scale, "log_precision_scale")
        if self.num_inducing is not None:
            count(self.num_inducing, "num_inducing")

    def build(
        self, fan_in: int, outputs: int, bias: bool, well_scaled: bool, context: BuildContext
    ) -> PosteriorModule:
        """Inducing features, pseudo-outputs and log-precisions."""
        points = self.num_inducing or context.num_inducing or fan_in
        inputs = context.normal(points, fan_in - bias)
        dtype = _factor_dtype(self.factor_dtype, well_scaled)
        return InducingWeights(self, inputs, points, outputs, dtype, context, bias)


def _is_hard(gram: Tensor, smallest: Tensor | float) -> bool:
    """Whether tr A / min P, which bounds the condition number of P + A, is too much for float32."""
    if not readable(gram):
        return False
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1).max()
    return bool(trace > HARD * smallest)


def _factor_dtype(name: str, well_scaled: bool) -> torch.dtype | None:
    return torch.float64 if name == "auto" and not well_scaled else FACTOR_DTYPES[name]


class InducingWeights(PosteriorModule):
    """Parameters of an inducing-point posterior over `[I, O]` weights.

    Attributes:
        pseudo_outputs: V, `[R, M, O]`.
        scaled_log_precision: log λ / log_precision_scale, `[R, M]` or `[R, O, M]` ("per_output").
        scaled_root: strictly lower triangle N of Λ's factor L = diag(λ)^½ (Id + N), `[R, M, M]`; "full" only.
        inducing_inputs: a local layer's learned features without the constant one, `[R, M, I - bias]`; else
            None.
    """

    def __init__(
        self,
        spec: GlobalInducing | LocalInducing,
        inputs: Tensor | None,
        points: int,
        outputs: int,
        factor_dtype: torch.dtype | None,
        context: BuildContext,
        bias: bool = False,
    ):
        """Create the parameters."""
        super().__init__()
        self.kind, self.factor_dtype = spec.precision, factor_dtype
        self.automatic = spec.factor_dtype == "auto"
        self.log_precision_scale = spec.log_precision_scale
        self.needs_inducing, self.bias = inputs is None, bias
        self.inducing_inputs = None if inputs is None else nn.Parameter(inputs)
        self.pseudo_outputs = nn.Parameter(
            _initial_pseudo_outputs(self.needs_inducing, points, outputs, context)
        )
        start = spec.log_precision if spec.log_precision is not None else (0.0 if context.last else -4.0)
        shape = (outputs, points) if self.kind == "per_output" else (points,)
        self.scaled_log_precision = nn.Parameter(context.full(shape, start / spec.log_precision_scale))
        root = context.full((points, points), 0.0) if self.kind == "full" else None
        self.scaled_root = None if root is None else nn.Parameter(root)

    @property
    def log_precision(self) -> Tensor:
        """Log λ, `[R, M]` or `[R, O, M]`."""
        return self.log_precision_scale * self.scaled_log_precision

    def statistics(self, features: Tensor, dtype: torch.dtype) -> Statistics:
        """The statistics of the pseudo-regression from `features` `[S, R, M, I]`, in `dtype`."""
        features, targets = features.to(dtype), self.pseudo_outputs.to(dtype)
        precision = self.log_precision.to(dtype).exp()
        if self.kind == "shared":
            return shared_statistics(features, targets, precision)
        if self.kind == "per_output":
            return per_output_statistics(features, targets, precision)
        return full_statistics(features, targets, self._full_root(dtype))

    def condition(
        self, features: Tensor | None, prior_precision: SymmetricOperator
    ) -> WeightPosterior | DualWeightPosterior:
        """Q(W | Φ): the posterior over the weights given inducing features `[S, R, M, I]`.

        Both kinds draw and score alike; the dual one serves where inducing points are few (3 M ≤ I).
        """
        if self.inducing_inputs is not None:
            features = pad(self.inducing_inputs, (0, int(self.bias)), value=1.0)
        assert features is not None
        dtype = self.factor_dtype or features.dtype
        mend = self.automatic and dtype == torch.float32
        if FEW * features.shape[-2] <= features.shape[-1]:
            dual = self._regress_dual(features, prior_precision, dtype)
            hard = mend and _is_hard(dual.gram, 1.0)
            return self._regress_dual(features, prior_precision, torch.float64) if hard else dual
        statistics = self.statistics(features, dtype)
        if mend and _is_hard(statistics.gram, prior_precision.diagonal().min()):
            dtype = torch.float64
            statistics = self.statistics(features, dtype)
        return regress(statistics, prior_precision.to(dtype))

    def _regress_dual(
        self, features: Tensor, prior_precision: SymmetricOperator, dtype: torch.dtype
    ) -> DualWeightPosterior:
        features, targets = features.to(dtype), self.pseudo_outputs.to(dtype)
        root = (0.5 * self.log_precision.to(dtype)).exp()  # [R, M] or [R, O, M]
        if self.kind == "full":
            whiten = self._full_root(dtype).mT
            features, targets, root = whiten @ features, whiten @ targets, torch.ones_like(root)
        root = root.mT if self.kind == "per_output" else root[..., None]
        return regress_dual(features, targets, root, prior_precision.to(dtype))

    def _full_root(self, dtype: torch.dtype) -> Tensor:
        """L, `[R, M, M]`."""
        assert self.scaled_root is not None
        root = self.scaled_root.to(dtype).tril(-1)
        identity = torch.eye(root.shape[-1], dtype=dtype, device=root.device)
        return self.log_precision.to(dtype).exp().sqrt()[..., None] * (identity + root)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W ~ Q(W | Φ), by one factorisation."""
        posterior = self.condition(features, prior_precision)
        weights, log_pq = posterior.draw(noise.to(posterior.dtype))
        return weights.to(noise.dtype), log_pq.to(noise.dtype)


def _initial_pseudo_outputs(is_global: bool, points: int, outputs: int, context: BuildContext) -> Tensor:
    """Standard normals, or the given targets at the last layer of a global posterior (App. O)."""
    given = context.pseudo_outputs
    if given is None or not is_global:
        return context.normal(points, outputs)
    lead = tuple(given.shape[:-2])
    if given.shape[-2:] != (points, outputs) or lead not in ((), context.replicas):
        wanted = [*context.replicas, points, outputs]
        raise ValueError(
            f"pseudo_outputs must have shape {wanted} (replicas, inducing points, outputs), "
            f"or its last two axes, got {list(given.shape)}"
        )
    return (
        given.to(dtype=context.dtype, device=context.device)
        .expand(*context.replicas, points, outputs)
        .clone()
    )
