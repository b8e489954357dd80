"""The first layer as a regression whose inputs, those of the network, never change."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gilib.arithmetic import exact_products
from gilib.draws import Evaluated
from gilib.layers.linear import Linear
from gilib.layers.weights import WeightLayer
from gilib.linalg import readable
from gilib.linalg.products import matmul
from gilib.network import Network
from gilib.regression.joint import JointState, Place
from gilib.regression.kept import Inverse, averaged_with, factored, inverse_of
from gilib.regression.moments import Residuals, cross_moments, gram_of, unexplained
from gilib.training.rules.base import Problem
from gilib.training.rules.layerwise import LayerRegression

STALE = 0.1  # by how much of itself the strength of the prior may move before V⁻¹ is factored anew


class KeptRegression(LayerRegression):
    """A first dense layer, with the second moments of all points.

    The strength κ of the prior is averaged as moments are. V⁻¹ is factored where that average has moved by a
    tenth since the last time, the deviation of the prior, that is, by a twentieth. Where the mean comes to
    rest does not depend on V⁻¹, and there κ is always the latest.

    Args:
        layer: with `Conjugate`.
        replicas: of the network.
        true_targets: whether it takes those of the data.
        problem: for the inputs of all points, and sums over processes.

    Attributes:
        strengths: the average of κ, and that at which V⁻¹ was factored, `[2, R]`; zero before the first step.
    """

    def __init__(self, layer: WeightLayer, replicas: tuple[int, ...], true_targets: bool, problem: Problem):
        """Compute the moments of all points."""
        super().__init__(layer, replicas, true_targets)
        inputs = problem.inputs
        if inputs is None:
            raise ValueError(
                "keep_moments=True is for inputs that never change, and augment changes them: leave one out"
            )
        self.sum = problem.sum_over_processes
        with exact_products():
            known = gram_of(inputs, self.feature_scale, bool(layer.bias))
        self.known = known.expand(*replicas, *known.shape[-2:])
        self.strengths = self.prior.new_zeros(2, *replicas)
        self.inverse: Inverse | None = None
        self.renewed = False
        self.seen: Callable[[Tensor], Tensor] | None = None

    def residuals(self, step: Evaluated, place: Place, gap: Tensor, weight: float) -> Residuals:
        """Cross moments; for the scatter about the new mean rows are kept until that is known."""
        spread, left = self.unexplained(step, place, gap)
        scale, bias = self.feature_scale, bool(self.layer.bias)

        def scatter(delta: Tensor) -> Tensor:
            rest = unexplained(spread, left, delta, scale, bias)
            return self.sum([matmul(rest.mT, rest).mul_(weight)])[0]

        self.seen = scatter
        nothing = left.new_empty(0)
        return Residuals(nothing, cross_moments(spread, left, weight, scale, bias), nothing)

    def averaged(self, batch: Residuals, strength: Tensor, rate: float | Tensor, place: Place) -> JointState:
        """The state after a minibatch."""
        own, state = self.posterior, self._refreshed(strength, rate)
        if state.precision_tril is not own.precision_tril and place.white is not None:  # S is by the T before
            place = Place(place.centre, matmul(state.precision_tril.mT, place.centre - own.mean))
        assert self.inverse is not None and self.seen is not None
        prior, scale = strength[..., None] * self.prior, own.prior_scale
        return averaged_with(state, self.inverse, batch.cross, prior, scale, rate, place, self.seen)

    def prepare(self) -> None:
        """Where a training goes on, its draws take the inverse from the first one."""
        if self.inverse is None and bool(self.strengths.any()):
            self.moved(True)

    def forget(self) -> None:
        """The posterior's state is another one: factor anew."""
        self.inverse = None
        self.strengths = torch.zeros_like(self.strengths)

    def moved(self, other: bool) -> None:
        """Draws take the inverse of what the posterior holds now, which may be other than was proposed."""
        if not readable(self.strengths):
            return
        if self.inverse is None or (other and self.renewed):
            self.inverse = inverse_of(self.posterior.precision_tril)
        self.posterior.remember_inverse(self.inverse.upper)

    def _refreshed(self, strength: Tensor, rate: float | Tensor) -> JointState:
        """The state, with V⁻¹ factored anew if it is time.

        On an accelerator, where nothing is read, it is factored at every step, and kept where it is time.
        """
        state, (average, used) = self.posterior.state, self.strengths
        average = torch.lerp(average, strength, rate).where(used > 0, strength)
        stale = (average - used).abs() > STALE * used
        self.strengths = torch.stack([average, average.where(stale, used)])
        if not readable(stale) or bool(stale.any()):
            precision, tril = factored(self.known, average[..., None] * self.prior)
            if stale.numel() > 1 or not readable(stale):
                where = stale[..., None, None]
                precision, tril = (
                    precision.where(where, state.precision),
                    tril.where(where, state.precision_tril),
                )
            state = state._replace(precision=precision, precision_tril=tril)
        self.renewed = state.precision_tril is not self.posterior.precision_tril
        if self.inverse is None or self.renewed:
            self.inverse = inverse_of(state.precision_tril)
        return state


def check_first(net: Network, layers: Sequence[WeightLayer]) -> None:
    """Raise unless the first of the layers with weights sees the inputs as they are."""
    first = next(iter(net.layers))
    if first is not layers[0] or not isinstance(first, Linear):
        raise ValueError(
            "keep_moments=True is for networks that begin with a dense layer, which sees the inputs as they "
            f"are: Linear with nothing before it; here the first is {first.describe()}, and the first with "
            f"weights {layers[0].describe()}"
        )
