"""Pseudo-outputs and their precisions: what an inducing-point posterior pretends to have observed."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from gilib.posteriors.base import BuildContext
from gilib.sites import Observations, Shape, Site
from gilib.validation import as_labels

KNOWN = 0.1  # standard deviation of pseudo-outputs of known weights, in units of their size


class PseudoSettings(Protocol):
    """What a specification says about pseudo-outputs."""

    @property
    def precision(self) -> str:
        """The kind of Λ."""

    @property
    def log_precision(self) -> float | None:
        """Where log λ starts; None: -4, and 0 in the last layer."""

    @property
    def log_precision_scale(self) -> float:
        """The factor by which the stored parameter is multiplied."""


class PseudoData(nn.Module):
    """Learned pseudo-outputs V of M inducing points, and their precisions Λ.

    Args:
        spec: the kind of Λ and where it starts.
        site: over which the regression is.
        points: M.
        context: what the network knows.
        targets: whether V may start at targets that the network was given.

    Attributes:
        outputs: V, `[R, M, O]` or `[R, M, O, H', W']`.
        scaled_log_precision: log λ / log_precision_scale, `[R, M]`, or `[R, O, M]` if per output.
        scaled_root: strictly lower triangle N of Λ's factor L = diag(λ)^½ (Id + N), `[R, M, M]`; "full" only.
    """

    def __init__(
        self, spec: PseudoSettings, site: Site, points: int, context: BuildContext, *, targets: bool
    ):
        """Create the parameters."""
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
        """Take outputs, `[..., M, O]` or images, known to a tenth of their size unless told otherwise."""
        self.outputs.copy_(outputs)
        if self.precision_is_free:
            size = outputs.square().mean().clamp_min(torch.finfo(outputs.dtype).tiny)
            self.scaled_log_precision.fill_(float((KNOWN**-2 / size).log()) / self.log_precision_scale)

    @property
    def points(self) -> int:
        """M."""
        return self.scaled_log_precision.shape[-1]

    @property
    def log_precision(self) -> Tensor:
        """Log λ, `[R, M]` or `[R, O, M]`."""
        return self.log_precision_scale * self.scaled_log_precision

    def observed(self, dtype: torch.dtype) -> Observations:
        """Their values in an arithmetic."""
        log_precision, root = self.log_precision.to(dtype), None
        if self.scaled_root is not None:
            strict = self.scaled_root.to(dtype).tril(-1)
            identity = torch.eye(self.points, dtype=dtype, device=strict.device)
            root = log_precision.exp().sqrt()[..., None] * (identity + strict)
        return Observations(self.outputs.to(dtype), self.kind, log_precision, root)


def signed_one_hot(labels: Tensor, classes: int, scale: float = 2.0) -> Tensor:
    """Labels `[...]` as pseudo-outputs `[..., classes]`: plus `scale` for the class, minus for the others.

    >>> signed_one_hot(torch.tensor([1, 0]), 2)
    tensor([[-2.,  2.],
            [ 2., -2.]])

    Raises:
        TypeError, ValueError: for labels that are not integers from 0 to classes - 1.
    """
    return scale * (2.0 * one_hot(as_labels(labels, classes), classes) - 1.0)


def fitted(given: Tensor, shape: Shape, context: BuildContext) -> Tensor:
    """Given targets as the start of pseudo-outputs `[R, *shape]` (Ober & Aitchison, 2021, App. O).

    Integers are labels of classes, and become `signed_one_hot`.
    """
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
