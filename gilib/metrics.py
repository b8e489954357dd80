"""Measures of predictions: one tested function for each."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gilib.draws import Composition, Draw, weight_outputs
from gilib.validation import count


def log_mean_exp(values: Tensor, dim: int = 0) -> Tensor:
    """Log (1/S) Σ_s exp(v_s) along `dim`.

    >>> log_mean_exp(torch.zeros(4))
    tensor(0.)
    """
    return values.logsumexp(dim) - math.log(values.shape[dim])


def test_log_likelihood(log_prob: Tensor) -> Tensor:
    """The test log-likelihood: log-mean-exp over samples first, then the mean over points.

    Args:
        log_prob: log p(y_n | f_s), `[S, R, N]`, in the units in which the result is wanted.

    Returns:
        nats per point, `[R]`.

    >>> test_log_likelihood(torch.zeros(3, 5))
    tensor(0.)
    """
    return log_mean_exp(log_prob, 0).mean(-1)


test_log_likelihood.__test__ = False  # type: ignore[attr-defined]


def rmse(mean: Tensor, targets: Tensor) -> Tensor:
    """Root mean squared error of a mean `[R, N, O]` against targets `[N, O]`, in their units; `[R]`.

    >>> rmse(torch.zeros(4, 1), torch.full((4, 1), 2.0))
    tensor(2.)
    """
    if mean.shape[-2:] != targets.shape[-2:]:
        raise ValueError(
            f"targets must have shape {list(mean.shape[-2:])} (points, outputs), got {list(targets.shape)}"
        )
    return (mean - targets).square().mean((-2, -1)).sqrt()


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy of categorical predictions `[..., N, O]`, nats per point, `[..., N]`.

    >>> entropy(torch.full((1, 4), 0.25))
    tensor([1.3863])
    """
    return torch.special.entr(probabilities).sum(-1)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> Tensor:
    """Mean distance of accuracy from confidence over equal bins of the top class's probability.

    ECE = Σ_b (n_b / N) |accuracy_b - confidence_b|      (Guo et al., 2017; Ober & Aitchison, 2021, App. L: 20
    bins)

    Args:
        probabilities: `[N, O]`.
        labels: `[N]`, integers.
        bins: how many.

    Returns:
        A scalar in [0, 1].

    >>> expected_calibration_error(torch.tensor([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1]))
    tensor(0.)
    """
    count(bins, "bins")
    confidence, predicted = probabilities.max(-1)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = confidence.new_zeros(bins).index_add(
        0, index, (predicted == labels).to(confidence.dtype) - confidence
    )
    return gap.abs().sum() / len(labels)


def layer_variances(draw: Draw, inputs: Tensor) -> list[Tensor]:
    """The mean variance of every layer's functions, E_x[(1/N_l) Σ_λ V f_λ(x)].

    Ober & Aitchison (2021), Eq. 84.

    Args:
        draw: S functions of a network; more samples, less noise.
        inputs: `[N, D]`; standard normal in the paper.

    Returns:
        One tensor `[R]` for every weight layer, in squared units of its outputs.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.FromPrior())
    >>> len(layer_variances(net.draw(100), torch.randn(20, 1)))
    2
    """
    if not isinstance(draw.function, Composition):
        raise TypeError("layer_variances needs the draw of a Network")
    return [values.var(0).mean((-2, -1)) for values in weight_outputs(draw.function, inputs)]
