"""Predict: draw functions once, evaluate them at all points, and pass their outputs to the likelihood."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from gilib.arguments import Count, checked
from gilib.arithmetic import exact_products
from gilib.data import Normalisation
from gilib.draws import Draw, Estimate, Moments
from gilib.likelihoods import Likelihood
from gilib.likelihoods.mixtures import GaussianPrediction, Prediction
from gilib.linalg import failures_as_nan
from gilib.network import Network
from gilib.prediction.drawables import Drawable
from gilib.randomness import GeneratorLike
from gilib.validation import as_inputs, check_tensor


@checked
@torch.no_grad()
def predict(
    drawable: Drawable,
    likelihood: Likelihood,
    x: Tensor | np.ndarray,
    num_samples: Count = 100,
    *,
    normalisation: Normalisation | None = None,
    batch_size: Count | None = None,
    generator: GeneratorLike | None = None,
    pointwise: bool = False,
) -> Prediction:
    """Predict with S functions, drawn once and evaluated everywhere.

    Args:
        drawable: a network, an `Ensemble`, stored `Samples`, or chains.
        likelihood: likelihood of the targets; for an ensemble it may have a noise for every member.
        x: inputs, `[N, D]` or `[R, N, D]`, a tensor or a NumPy array; in original units if a normalisation is
            given. A warning says so if they lie far from the training inputs, or if, without a normalisation,
            a column lies outside its training values.
        num_samples: S; for an ensemble, S for each member. A hundred samples give the mean to a tenth of the
            functions' standard deviation; use a thousand for tails, or for numbers to be compared.
        normalisation: scaling of inputs and targets in training. Arrays keep their precision until they are
            scaled, and predictions are in original units and float64.
        batch_size: points per batch; all if None. Set it to save memory.
        generator: source of the draws.
        pointwise: draw every point independently, as in training. This is for networks, and for means,
            deviations and densities at single points: components are then no functions.

    Returns:
        The prediction of the likelihood, such as a `GaussianPrediction`, `CategoricalPrediction` or
        `MixturePrediction`. Replicas that broke down in training, and ensembles with such a member, predict
        NaN; a warning names them, and names a network that gives no numbers.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.Factorised())
    >>> gilib.predict(net, gilib.Gaussian(0.1), torch.zeros(3, 1)).mean.shape
    torch.Size([3, 1])
    """
    x = checked_inputs(drawable, x, normalisation)
    parts = list(_evaluated(drawable, likelihood, x, num_samples, batch_size, generator, pointwise))
    return _predicted(drawable, likelihood, parts, normalisation)


@torch.no_grad()
def predict_batches(
    drawable: Drawable,
    likelihood: Likelihood,
    x: Tensor | np.ndarray,
    num_samples: int,
    *,
    normalisation: Normalisation | None = None,
    batch_size: int,
    generator: GeneratorLike | None = None,
) -> Iterator[Prediction]:
    """Predict batch by batch, with less memory; arguments are those of `predict`."""
    x = checked_inputs(drawable, x, normalisation)
    for part in _evaluated(drawable, likelihood, x, num_samples, batch_size, generator, False):
        yield _predicted(drawable, likelihood, [part], normalisation)


def _evaluated(
    drawable: Drawable,
    likelihood: Likelihood,
    x: Tensor,
    num_samples: int,
    batch_size: int | None,
    generator: GeneratorLike | None,
    pointwise: bool,
) -> Iterator[Moments]:
    points = -1 - len(drawable.input_shape)
    draw: Draw | Estimate | None = None
    for part in x.split(int(batch_size or x.shape[points]), dim=points):
        # one broken member or replica must not stop the others
        with failures_as_nan() if drawable.members or drawable.replicas else nullcontext():
            if pointwise:
                if not isinstance(drawable, Network):
                    raise TypeError(
                        f"pointwise=True is for a network, {type(drawable).__name__} draws functions: "
                        "leave it out"
                    )
                draw = drawable.estimate(num_samples, part.shape[points], generator=generator)
            elif draw is None:
                draw = drawable.draw(num_samples, generator=generator)
            found = draw.moments(part) if likelihood.integrates else Moments(draw(part))
        yield found


def _predicted(
    drawable: Drawable, likelihood: Likelihood, parts: Sequence[Moments], normalisation: Normalisation | None
) -> Prediction:
    members, axis = drawable.members, -1 - len(drawable.output_shape)
    outputs, *variance = (
        torch.cat(pieces, axis).unflatten(0, (-1, *members))
        for pieces in zip(*parts, strict=True)
        if pieces[0] is not None
    )
    _warn_if_broken(outputs, len(members), len(drawable.replicas))
    with exact_products():
        prediction = likelihood.predictive(outputs, normalisation, *variance)
    found = prediction.pooled(len(members)) if members else prediction
    if normalisation is None or normalisation.y_stretch is None:
        return found
    if not isinstance(found, GaussianPrediction):
        raise TypeError(f"y_stretch is for Gaussian predictions, {type(likelihood).__name__} makes others")
    return found.stretched(normalisation.y_stretch)


def checked_inputs(drawable: Drawable, x: object, normalisation: Normalisation | None) -> Tensor:
    """Check the inputs and return them in the units of training."""
    if isinstance(drawable, type) or not isinstance(drawable, Drawable):
        raise TypeError(
            f"predict needs what draws functions (a Network, an Ensemble, Samples), got {drawable!r:.80}"
        )
    like = drawable.reference_tensor()
    if normalisation is None:
        x = as_inputs(x, "x", like)
    else:
        original = as_inputs(x, "x", torch.empty(0, dtype=torch.float64))  # rounded once of order one
        kept = torch.get_default_dtype() if original is not x else None
        scaled = normalisation.x(check_tensor(original, "x"))
        x = scaled.to(like) if like is not None else scaled.to(kept or scaled.dtype)
    check_tensor(x, "x", like)
    shape, replicas = drawable.input_shape, drawable.replicas
    if tuple(x.shape[-len(shape) :]) != shape:
        raise ValueError(f"x must hold points of shape {list(shape)}, got {list(x.shape)}")
    if tuple(x.shape[: -1 - len(shape)]) not in ((), replicas):
        sizes = [", ".join(map(str, [*lead, "N", *shape])) for lead in dict.fromkeys([(), tuple(replicas)])]
        wanted = " or ".join(f"[{each}]" for each in sizes)
        raise ValueError(f"x must have shape {wanted}, got {list(x.shape)}")
    _warn_if_far(getattr(drawable, "trained_range", None), x, normalisation)  # one of your own needs no range
    return x


def _warn_if_broken(outputs: Tensor, members: int, replicas: int) -> None:
    """Warn of NaN in `[S, K, R, ...]`, as of members K and replicas R that broke down in training."""
    if bool(outputs.isfinite().all()):
        return
    lead = outputs.flatten(1 + members + replicas).isfinite().all(-1).all(0)  # [K, R]
    broken, then = f" {(~lead).nonzero().squeeze(-1).tolist()} give", "their"
    who = "members" if members else "replicas"
    if members:
        then = "leave them out of the ensemble, whose"
    elif not replicas:
        who, broken, then = "the drawn functions", " give", "load or train the network again, its"
    warnings.warn(
        f"{who}{broken} no numbers (a matrix could not be factorised, or a parameter is not finite): "
        f"{then} predictions are NaN",
        stacklevel=6,
    )


def _warn_if_far(seen: Tensor | None, x: Tensor, normalisation: Normalisation | None) -> None:
    """Warn if half of the points lie outside the training inputs by three widths of their interval.

    They are most likely in other units. Without a normalisation, one column at nearly all points is enough.
    """
    if seen is None:
        return
    low, high = seen.to(x)  # [...]
    width = high - low
    distance = x - high
    distance = torch.maximum(distance, low - x, out=distance)  # [..., N, ...], negative within
    outside = distance > 3.0 * torch.where(width > 0, width, width.mean())
    points = outside.flatten(x.dim() - low.dim()).any(-1)
    advice = (
        "were those normalised? Then hand over original units with normalisation=, or normalise x"
        if normalisation is None
        else "are they in other units?"
    )
    where = "inputs lie far outside those of the training"
    if float(points.double().mean()) > 0.5:
        warnings.warn(f"{int(points.sum())} of {points.numel()} {where}: {advice}", stacklevel=6)
    elif normalisation is None and low.dim() == 1 and len(columns := _apart(distance.flatten(0, -2), width)):
        where = f"column {columns[0]} of x lies outside its values in the training at nearly all points"
        warnings.warn(f"{where}: {advice}", stacklevel=6)


def _apart(distance: Tensor, width: Tensor) -> list[int]:
    """Return columns that lie outside by a quarter of their width at 95 % of the points, five or more."""
    if len(distance) < 5:
        return []
    most = (distance > 0.25 * width).double().mean(0) > 0.95
    return (most & (width > 0.1 * width.mean())).nonzero().flatten().tolist()
