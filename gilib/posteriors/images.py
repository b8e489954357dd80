"""Posteriors over the weights of a convolution: which of them see images, and which patches.

Factorised weights, weights from the prior and local inducing points know nothing of images: to them a
convolution is a dense layer whose inputs are patches. Global inducing points are images; the layer regresses
all their windows onto pseudo-outputs that are images too.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from gilib.convolution import Windows
from gilib.convolution.patches import patches
from gilib.dual_regression import DualWeightPosterior, regress_dual
from gilib.linalg import SymmetricOperator
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.posteriors.inducing import FEW, GlobalInducing, LocalInducing, _factor_dtype, _is_hard
from gilib.regression import WeightPosterior, regress
from gilib.statistics import Statistics, convolutional_statistics

Shape = tuple[int, ...]


def build_convolution(
    posterior: Posterior,
    windows: Windows,
    shape: Shape,
    outputs: int,
    well_scaled: bool,
    context: BuildContext,
) -> PosteriorModule:
    """Create the module of a posterior over the weights `[C K, O]` of a convolution.

    Local inducing points are patches here (as in the reference implementation), as many as the fan-in C K
    unless the posterior says otherwise: the network's inducing points are images, of another kind.

    Args:
        posterior: its specification.
        windows: of the statistics.
        shape: of one input image, (C, H, W).
        outputs: O.
        well_scaled: whether the prior keeps float32 factorisations safe.
        context: what the network knows.

    Raises:
        ValueError: for global inducing points with another precision than one per image.
    """
    fan_in = shape[0] * windows.pixels
    if isinstance(posterior, GlobalInducing):
        return InducingImages(posterior, windows, shape, outputs, well_scaled, context)
    if isinstance(posterior, LocalInducing) and posterior.num_inducing is None:
        posterior = replace(posterior, num_inducing=fan_in)
    return posterior.build(fan_in, outputs, False, well_scaled, context)


class InducingImages(PosteriorModule):
    """Parameters of a global-inducing posterior over the weights of a convolution.

    Attributes:
        pseudo_outputs: V, `[R, M, O, H', W']`, one number for every window of every inducing image.
        scaled_log_precision: log λ / log_precision_scale, `[R, M]`, one for every inducing image (App. O).
    """

    needs_inducing = True

    def __init__(
        self,
        spec: GlobalInducing,
        windows: Windows,
        shape: Shape,
        outputs: int,
        well_scaled: bool,
        context: BuildContext,
    ):
        """Create the parameters."""
        super().__init__()
        if spec.precision != "shared":
            raise ValueError(
                f"a convolution has one precision per inducing image, got precision={spec.precision!r}: "
                "use GlobalInducing(precision='shared')"
            )
        if context.num_inducing is None:
            raise ValueError(
                "GlobalInducing needs inducing points: give the network inducing_points of shape [M, C, H, W]"
            )
        self.windows, self.image_shape = windows, tuple(shape)
        self.factor_dtype = _factor_dtype(spec.factor_dtype, well_scaled)
        self.automatic, self.log_precision_scale = spec.factor_dtype == "auto", spec.log_precision_scale
        size = windows.output_size((shape[1], shape[2]))
        self.pseudo_outputs = nn.Parameter(
            _initial_pseudo_outputs((context.num_inducing, outputs, *size), context)
        )
        start = spec.log_precision if spec.log_precision is not None else (0.0 if context.last else -4.0)
        self.scaled_log_precision = nn.Parameter(
            context.full((context.num_inducing,), start / spec.log_precision_scale)
        )

    @property
    def log_precision(self) -> Tensor:
        """Log λ, `[R, M]`."""
        return self.log_precision_scale * self.scaled_log_precision

    def statistics(self, images: Tensor, dtype: torch.dtype) -> Statistics:
        """The statistics of the pseudo-regression from `images` `[S, R, M, C, H, W]`, in `dtype`."""
        precision = self.log_precision.to(dtype).exp()
        return convolutional_statistics(
            images.to(dtype), self.pseudo_outputs.to(dtype), precision, self.windows
        )

    def condition(
        self, images: Tensor, prior_precision: SymmetricOperator
    ) -> WeightPosterior | DualWeightPosterior:
        """Q(W | images): the posterior over the weights given inducing images `[S, R, M, C, H, W]`.

        Both kinds draw and score alike; the dual one serves where windows are few (3 M H' W' ≤ I).

        Raises:
            ValueError: if the images are not of the number and size that the layer was built for.
        """
        wanted = (self.pseudo_outputs.shape[-4], *self.image_shape)
        if tuple(images.shape[-4:]) != wanted:
            raise ValueError(
                f"inducing images must have shape [..., {', '.join(map(str, wanted))}], for which the layer "
                f"was built, got {list(images.shape)}"
            )
        dtype = self.factor_dtype or images.dtype
        mend = self.automatic and dtype == torch.float32
        if self.is_few:
            dual = self._regress_dual(images, prior_precision, dtype)
            hard = mend and _is_hard(dual.gram, 1.0)
            return self._regress_dual(images, prior_precision, torch.float64) if hard else dual
        statistics = self.statistics(images, dtype)
        if mend and _is_hard(statistics.gram, prior_precision.diagonal().min()):
            dtype = torch.float64
            statistics = self.statistics(images, dtype)
        return regress(statistics, prior_precision.to(dtype))

    @property
    def is_few(self) -> bool:
        """Whether there are so few windows, M H' W', that a system of their number is the smaller one."""
        count, height, width = (self.pseudo_outputs.shape[axis] for axis in (-4, -2, -1))
        return FEW * count * height * width <= self.image_shape[0] * self.windows.pixels

    def _regress_dual(
        self, images: Tensor, prior_precision: SymmetricOperator, dtype: torch.dtype
    ) -> DualWeightPosterior:
        """From explicit windows, fewer than the I × I entries of the other system."""
        lead = images.shape[:-3]
        windows = patches(images.to(dtype).flatten(0, -4), self.windows)  # [C, k, k, S R M, H', W']
        rows = windows.permute(3, 4, 5, 0, 1, 2).flatten(3).flatten(1, 2)  # [S R M, H' W', I]
        features = rows.unflatten(0, lead).flatten(-3, -2)  # [S, R, M H' W', I]
        targets = self.pseudo_outputs.to(dtype).flatten(-2).mT.flatten(-3, -2)  # [R, M H' W', O]
        root = (0.5 * self.log_precision.to(dtype)).exp().repeat_interleave(rows.shape[1], -1)
        return regress_dual(features, targets, root[..., None], prior_precision.to(dtype))

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W ~ Q(W | images), by one factorisation; `features` are the inducing images."""
        assert features is not None
        posterior = self.condition(features, prior_precision)
        weights, log_pq = posterior.draw(noise.to(posterior.dtype))
        return weights.to(noise.dtype), log_pq.to(noise.dtype)


def _initial_pseudo_outputs(shape: Shape, context: BuildContext) -> Tensor:
    """Standard normals, or the given targets at the last layer."""
    given = context.pseudo_outputs
    if given is None:
        return context.normal(*shape)
    lead = tuple(given.shape[: -len(shape)])
    if tuple(given.shape[-len(shape) :]) != shape or lead not in ((), context.replicas):
        raise ValueError(
            f"pseudo_outputs of a convolution must have shape {[*context.replicas, *shape]} (replicas, "
            f"inducing images, outputs, height, width), or its last four axes, got {list(given.shape)}"
        )
    values = given.to(dtype=context.dtype, device=context.device)
    return values.expand(*context.replicas, *shape).clone()
