"""Bounds on the log evidence, estimated from draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from torch import Tensor

from gilib import validation
from gilib.arguments import Checked, Count, CountOrZero, Positive
from gilib.arithmetic import exact_products
from gilib.draws import Draw, Drawn, record
from gilib.likelihoods import Likelihood
from gilib.linalg import readable


def elbo(
    draw: Drawn,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    num_data: int,
    reduction: str = "mean",
    per_point: bool = False,
    kl_weight: float = 1.0,
) -> Tensor:
    """Estimate the evidence lower bound from draws and a minibatch (Ober & Aitchison, 2021, Eqs. 3, 13).

        L = (N/B) Σ_b log P(y_b | f(x_b)) + kl_weight · (log P - log Q)

    Args:
        draw: S functions, or an estimate for B points.
        likelihood: likelihood of the targets.
        x: inputs of the minibatch, `[B, D]` or `[R, B, D]`.
        y: targets, `[B, O]` or `[R, B, O]`.
        num_data: N, the size of the whole training set.
        reduction: "mean" over the draws, or "none".
        per_point: whether to divide by N.
        kl_weight: factor of the Kullback-Leibler term (tempering); the result is a bound only at 1.

    Returns:
        Nats, `[R]` (a scalar without replicas); `[S, R]` with `reduction="none"`.

    Raises:
        ValueError: if inputs or targets hold NaN or infinity (not checked on accelerators), or differ between
            draws, or a setting is invalid.
        TypeError: if numbers are complex.

    >>> import torch, gilib
    >>> net = gilib.models.mlp(1, (), 1, posterior=gilib.FromPrior())
    >>> x = torch.zeros(4, 1)
    >>> gilib.elbo(net.draw(3), gilib.Gaussian(1.0), x, x, num_data=4, reduction="none").shape
    torch.Size([3])
    """
    validation.check_choice(reduction, ("mean", "none"), "reduction")
    validation.check_count(num_data, "num_data")
    validation.check_instance(draw, Drawn, "draw (of a network: net.draw(num_samples) or net.estimate(S, N))")
    validation.check_instance(likelihood, Likelihood, "likelihood")
    if isinstance(kl_weight, complex) or (isinstance(kl_weight, Tensor) and kl_weight.is_complex()):
        raise TypeError(f"kl_weight must be a real number, got {kl_weight!r}")
    validation.check_instance(per_point, bool, "per_point")
    if not (isinstance(kl_weight, Tensor) or (isinstance(kl_weight, Real) and 0.0 <= kl_weight < math.inf)):
        raise ValueError(f"kl_weight must be a finite number of at least 0, got {kl_weight!r}")
    x, y = _data(draw, x, y)
    with exact_products():
        bound = estimated_bound(draw, likelihood, x, y, num_data, kl_weight)
    if per_point:
        bound = bound / num_data
    return bound.mean(0) if reduction == "mean" else bound


def estimated_bound(
    draw: Drawn, likelihood: Likelihood, x: Tensor, y: Tensor, num_data: int, kl_weight: float | Tensor
) -> Tensor:
    """Return the bound of every draw, `[S, R]`, without checking numbers, for steps of training.

    Raises:
        ValueError: if the batch has more points than the training set.
    """
    log_pq = draw.density
    log_likelihood = likelihood.expected_log_prob(draw, x, y)
    batch = log_likelihood.shape[-1]
    if num_data < batch:
        raise ValueError(
            f"num_data is the size of the whole training set: {num_data} is less than this batch of {batch}"
        )
    return (num_data / batch) * log_likelihood.sum(-1) + kl_weight * log_pq


def _data(draw: Drawn, x: object, y: object) -> tuple[Tensor, Tensor]:
    """Return inputs and targets if they are finite, and if all samples share the inputs."""
    inputs = _finite(validation.as_inputs(x, "x", draw.density), "x", draw.density)
    if draw.input_axes is not None:
        validation.check_own_targets(inputs.shape[: -1 - draw.input_axes], draw.density.shape[1:], "inputs")
    return inputs, _finite(y, "y", draw.density)


def _finite(value: object, name: str, like: Tensor) -> Tensor:
    tensor = validation.as_tensor(value, name, like)
    validation.check_not_empty(tensor, name)
    if readable(tensor):
        validation.check_finite(tensor, name)
    return tensor


@dataclass(frozen=True)
class SteppedTempering(Checked):
    """A factor of the Kullback-Leibler term that rises from 0 in equal stairs (ibid., App. O).

    In the paper it is 0 for the first ten epochs, 0.1 for the next ten, and so on; 1 from epoch 100.

    Args:
        steps: gradient steps until the last value; 0 to start with it.
        stairs: number of stairs.
        last: value after the stairs; below 1 the posterior is cold, and the objective is not a bound.

    >>> weight = SteppedTempering(100)
    >>> weight(0), weight(9), weight(10), weight(99), weight(100)
    (0.0, 0.0, 0.1, 0.9, 1.0)
    """

    steps: CountOrZero
    stairs: Count = 10
    last: Positive = 1.0

    def __call__(self, step: int) -> float:
        """Return the factor at a step, counted from 0."""
        if step >= self.steps:
            return self.last
        return self.last * (step * self.stairs // self.steps) / self.stairs


def iwbo(draw: Draw, likelihood: Likelihood, x: Tensor, y: Tensor) -> Tensor:
    """Return the importance-weighted bound of S draws (Burda et al., 2016), on average at least the ELBO.

        log (1/S) Σ_s P(y | f_s) P(f_s) / Q(f_s) ≤ log P(y) in expectation

    Args:
        draw: S functions. Estimates are refused, because independent points belong to another model. So are
            draws of Gaussian processes, which use random features: pass `net.joint_draw(S, N)` for these.
        likelihood: likelihood of the targets.
        x: ALL training inputs, `[N, D]`; a scaled minibatch would not give a bound.
        y: all targets.

    Returns:
        Nats, `[R]`, summed over the points. If Q has no density, as for `PointEstimate` and `Dropout`, this
        is not a bound, and neither is `elbo`.

    Raises:
        ValueError: for the reasons of `elbo`.
        TypeError: if draws are not exact at these points jointly.

    >>> import torch, gilib
    >>> net = gilib.models.mlp(1, (), 1, posterior=gilib.FromPrior())
    >>> gilib.iwbo(net.draw(3), gilib.Gaussian(1.0), torch.zeros(4, 1), torch.zeros(4, 1)).shape
    torch.Size([])
    """
    if not isinstance(draw, Draw):
        raise TypeError(
            f"iwbo needs joint draws of functions, got {type(draw).__name__}: use net.draw(num_samples), or, "
            "of Gaussian processes, net.joint_draw(num_samples, num_points), which is exact at so many points"
        )
    x, y = _data(draw, x, y)
    validation.check_instance(likelihood, Likelihood, "likelihood")
    with exact_products():
        outputs, steps = record(draw, x)
        log_likelihood = likelihood.log_prob(outputs, y).sum(-1)
    if any(getattr(step.function, "approximate", False) for step in steps):
        raise TypeError(
            "iwbo needs draws that are exact at all points jointly, and paths of Gaussian processes are so "
            "on average only, over their random features: use "
            f"net.joint_draw({len(outputs)}, {x.shape[-2]})"
        )
    log_weights = log_likelihood + draw.density  # [S, R]
    return log_weights.logsumexp(0) - math.log(log_weights.shape[0])
