"""Pseudo-outputs and their precisions: the observations from which an inducing-point posterior regresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gilib.arguments import Positive, one_of
from gilib.posteriors.base import BuildContext
from gilib.sites import PRECISIONS, Observations, Shape, Site
from gilib.validation import as_labels

FACTOR_DTYPES = {"auto": None, "parameters": None, "float32": torch.float32, "float64": torch.float64}
KNOWN = 0.1  # standard deviation of pseudo-outputs that start at known weights, relative to their RMS


@dataclass(frozen=True)
class PseudoSettings:
    """The settings of pseudo-outputs, and of the regression onto them; see `GlobalInducing`."""

    precision: Annotated[str, one_of(PRECISIONS)] = "shared"
    log_precision: float | None = None
    log_precision_scale: Positive = 3.0
    factor_dtype: Annotated[str, one_of(FACTOR_DTYPES)] = "auto"


class PseudoData(nn.Module):
    """Learned pseudo-outputs V at M inducing points, and their precisions Λ.

    Args:
        points: M.
        targets: whether V starts at the pseudo-outputs of `context`, if it has any.

    Attributes:
        outputs: V, `[R, M, O]`, or `[R, M, O, H', W']` in a convolution.
        scaled_log_precision: log λ / log_precision_scale, `[R, M]`, or `[R, O, M]` if Λ is "per_output".
        scaled_root: N, `[R, M, M]`, if Λ is "full", else None. Its strict lower triangle defines the factor
            L = diag(λ)^½ (Id + N) of Λ = L Lᵀ.
    """

    def __init__(
        self, spec: PseudoSettings, site: Site, points: int, context: BuildContext, *, targets: bool
    ):
        super().__init__()
        self.kind, self.log_precision_scale = spec.precision, spec.log_precision_scale
        shape = site.pseudo_outputs(points)
        site.check_precision(self.kind)
        given = context.pseudo_outputs if targets else None
        self.outputs = nn.Parameter(
            context.normal(*shape) if given is None else fitted(given, shape, context)
        )
        self.precision_is_free = spec.log_precision is None
        start = spec.log_precision if spec.log_precision is not None else (0.0 if context.last else -4.0)
        rows = (site.outputs, points) if self.kind == "per_output" else (points,)
        self.scaled_log_precision = nn.Parameter(context.full(rows, start / spec.log_precision_scale))
        root = context.full((points, points), 0.0) if self.kind == "full" else None
        self.scaled_root = None if root is None else nn.Parameter(root)

    @torch.no_grad()
    def start_at(self, outputs: Tensor) -> None:
        """Set V to `outputs`, `[..., M, O]` or images.

        Unless `log_precision` was specified, the standard deviation of V becomes a tenth of the outputs' RMS.
        """
        self.outputs.copy_(outputs)
        if self.precision_is_free:
            size = outputs.square().mean().clamp_min(torch.finfo(outputs.dtype).tiny)
            self.scaled_log_precision.fill_(float((KNOWN**-2 / size).log()) / self.log_precision_scale)

    @property
    def points(self) -> int:
        """M, the number of inducing points."""
        return self.scaled_log_precision.shape[-1]

    @property
    def log_precision(self) -> Tensor:
        """The log-precisions log λ, `[R, M]`, or `[R, O, M]` if Λ is "per_output"."""
        return self.log_precision_scale * self.scaled_log_precision

    def observed(self, dtype: torch.dtype) -> Observations:
        """Return V and Λ in the given dtype."""
        log_precision, root = self.log_precision.to(dtype), None
        if self.scaled_root is not None:
            strict = self.scaled_root.to(dtype).tril(-1)
            identity = torch.eye(self.points, dtype=dtype, device=strict.device)
            root = log_precision.exp().sqrt()[..., None] * (identity + strict)
        return Observations(self.outputs.to(dtype), self.kind, log_precision, root)


def signed_one_hot(labels: Tensor, classes: int, scale: float = 2.0) -> Tensor:
    """Encode labels `[...]` as pseudo-outputs `[..., classes]`: `scale` for the label's class, else -`scale`.

    >>> signed_one_hot(torch.tensor([1, 0]), 2)
    tensor([[-2.,  2.],
            [ 2., -2.]])
    """
    return scale * (2.0 * one_hot(as_labels(labels, classes), classes) - 1.0)


def fitted(given: Tensor, shape: Shape, context: BuildContext) -> Tensor:
    """Convert targets or labels to initial pseudo-outputs `[R, *shape]` (Ober & Aitchison, 2021, App. O)."""
    if not given.is_floating_point() and len(shape) == 2 and tuple(given.shape[-1:]) == shape[:1]:
        if shape[1] == 1:
            raise ValueError(
                "pseudo_outputs of a network with one output must be floating-point numbers, "
                f"got {given.dtype}, which would be labels of classes"
            )
        given = signed_one_hot(given, shape[1])
    lead = tuple(given.shape[: -len(shape)])
    if tuple(given.shape[-len(shape) :]) != shape or lead not in ((), context.replicas):
        raise ValueError(
            f"pseudo_outputs must have shape {[*context.replicas, *shape]} (replicas, inducing points, "
            f"outputs, and pixels at a convolution), or its last {len(shape)} axes, got {list(given.shape)}"
        )
    values = given.to(dtype=context.dtype, device=context.device)
    return values.expand(*context.replicas, *shape).clone()
