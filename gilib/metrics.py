"""Measures of predictions, such as test log-likelihood, RMSE and calibration."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.arithmetic import exact_products
from gilib.draws import Draw, record
from gilib.validation import as_labels, as_tensor, check_count, check_distributions

_FLOAT64 = torch.empty(0, dtype=torch.float64)


def log_mean_exp(values: Tensor, dim: int = 0) -> Tensor:
    """Return log (1/S) Σ_s exp(v_s) along `dim`.

    >>> log_mean_exp(torch.zeros(4))
    tensor(0.)
    """
    return _check_tensor(values, "values").logsumexp(dim) - math.log(values.shape[dim])


def test_log_likelihood(log_prob: Tensor) -> Tensor:
    """Return the test log-likelihood: log-mean-exp over samples, then the mean over points.

    Args:
        log_prob: log p(y_n | f_s), `[S, R, N]`, in the units that the result shall have.

    Returns:
        Nats per point, `[R]`.

    >>> test_log_likelihood(torch.zeros(3, 5))
    tensor(0.)
    """
    return log_mean_exp(log_prob, 0).mean(-1)


test_log_likelihood.__test__ = False  # type: ignore[attr-defined]


def rmse(mean: Tensor, targets: Tensor, per_output: bool = False) -> Tensor:
    """Return the root mean squared error, `[R]`, of a mean `[R, N, O]` in the units of the targets.

    Args:
        mean: predictive mean, a tensor or a NumPy array, like the arguments of all measures.
        targets: targets, `[N, O]`.
        per_output: return one error for each output, `[R, O]`, for outputs with different units.

    >>> rmse(torch.zeros(4, 1), torch.full((4, 1), 2.0))
    tensor(2.)
    """
    mean = _check_tensor(mean, "mean")
    targets = _check_tensor(targets, "targets", mean)
    if mean.dim() < 2:
        raise ValueError(f"mean must be [N, O], got {list(mean.shape)}: write [:, None] for one output")
    if mean.shape[-2:] != targets.shape[-2:]:
        raise ValueError(
            f"targets must have shape {list(mean.shape[-2:])} (points, outputs), got {list(targets.shape)}"
        )
    gap = mean - targets
    squares = gap.square() if gap.is_floating_point() else gap.double().square()
    return squares.mean(-2 if per_output else (-2, -1)).sqrt()


def _check_tensor(value: Tensor, name: str, like: Tensor | None = None) -> Tensor:
    """Return an array as a tensor, like a floating-point `like`, or else in float64."""
    return as_tensor(value, name, _FLOAT64 if like is None or not like.is_floating_point() else like)


def entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of categorical predictions `[..., N, O]`: nats at each point, `[..., N]`.

    >>> entropy(torch.full((1, 4), 0.25))
    tensor([1.3863])
    """
    probabilities = _check_tensor(probabilities, "probabilities")
    check_distributions(probabilities)
    return torch.special.entr(probabilities).sum(-1)


def accuracy(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the fraction of points whose most probable class is their label.

    Args:
        probabilities: `[..., N, O]`.
        labels: `[N]`, integers.

    Returns:
        `[...]`, between 0 and 1.

    >>> accuracy(torch.eye(2), torch.tensor([0, 0]))
    tensor(0.5000)
    """
    probabilities, labels = _labelled(probabilities, labels)
    return (probabilities.argmax(-1) == labels).to(probabilities.dtype).mean(-1)


@dataclass(frozen=True)
class CalibrationCurve:
    """Accuracy of a classifier as a function of its confidence, in B equal bins of the top probability.

    Attributes:
        confidence: mean probability of the top class in each bin, `[B]`; NaN in an empty bin.
        accuracy: fraction of labels that equal the top class, `[B]`; NaN in an empty bin.
        counts: number of points in each bin, `[B]`, integers.
    """

    confidence: Tensor
    accuracy: Tensor
    counts: Tensor

    @property
    def error(self) -> Tensor:
        """The expected calibration error; see `expected_calibration_error`."""
        gaps = (self.accuracy - self.confidence).abs().nan_to_num()
        return (gaps * self.counts).sum() / self.counts.sum()

    @property
    def noise_level(self) -> Tensor:
        """The approximate `error` of a perfectly calibrated classifier with these confidences p_b.

            √(2/π) Σ_b (n_b / N) √(p_b (1 - p_b) / n_b)

        This is the mean absolute deviation of Gaussians with the variance of n_b labels.
        """
        sure = self.confidence.nan_to_num()
        spread = (self.counts * sure * (1.0 - sure)).sqrt().sum()
        return math.sqrt(2.0 / math.pi) * spread / self.counts.sum()


def calibration_curve(probabilities: Tensor, labels: Tensor, bins: int = 20) -> CalibrationCurve:
    """Group points by the probability of their top class (Ober & Aitchison, 2021, App. L: 20 equal bins).

    Args:
        probabilities: `[N, O]`.
        labels: `[N]`, integers.
        bins: B; bin b covers the probabilities in (b/B, (b+1)/B].

    Returns:
        The `CalibrationCurve`, of which confidence, accuracy and counts are `[B]`.

    >>> calibration_curve(torch.tensor([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1]), bins=4).counts
    tensor([0, 0, 4, 0])
    """
    check_count(bins, "bins")
    probabilities, labels = _labelled(probabilities, labels)
    if probabilities.dim() != 2:
        got = list(probabilities.shape)
        raise ValueError(f"a calibration curve needs probabilities [N, O], got {got}: average the samples")
    check_distributions(probabilities)
    confidence, predicted = probabilities.max(-1)
    index = (confidence * bins).ceil().long().clamp(1, bins) - 1
    counts = torch.bincount(index, minlength=bins)

    def mean(values: Tensor) -> Tensor:
        return confidence.new_zeros(bins).index_add(0, index, values.to(confidence.dtype)) / counts

    return CalibrationCurve(mean(confidence), mean(predicted == labels), counts)


def expected_calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 20) -> Tensor:
    """Return the `error` of the calibration curve, a scalar in [0, 1] (Guo et al., 2017).

        ECE = Σ_b (n_b / N) |accuracy_b - confidence_b|

    Args:
        probabilities: `[N, O]`.
        labels: `[N]`, integers.
        bins: number of equal bins of the top probability.

    >>> expected_calibration_error(torch.tensor([[0.75, 0.25]] * 4), torch.tensor([0, 0, 0, 1]))
    tensor(0.)
    """
    return calibration_curve(probabilities, labels, bins).error


def auroc(positive: Tensor, negative: Tensor) -> Tensor:
    """Return the area under the receiver operating characteristic of a score.

        P(s⁺ > s⁻) + ½ P(s⁺ = s⁻) for one random score of each kind       (Mann & Whitney, 1947)

    Args:
        positive: scores of positive points, which should be large, `[N]`.
        negative: scores of negative points, which should be small, `[M]`.

    Returns:
        A scalar, float64.

    >>> auroc(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 2.0]))
    tensor(0.8750, dtype=torch.float64)
    """
    positive, negative = _scores(positive, negative)
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive.contiguous())
    not_above = torch.searchsorted(ordered, positive.contiguous(), right=True)
    return (below + not_above).double().mean() / (2 * len(negative))


def _scores(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    positive, negative = _check_tensor(positive, "positive"), _check_tensor(negative, "negative")
    for name, scores in (("positive", positive), ("negative", negative)):
        if scores.dim() != 1 or not len(scores):
            raise ValueError(f"{name} scores must be [N], at least one, got shape {list(scores.shape)}")
        if scores.isnan().any():
            raise ValueError(f"{name} scores hold NaN, which has no rank")
    return positive, negative


def _labelled(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    probabilities, labels = _check_tensor(probabilities, "probabilities"), _check_tensor(labels, "labels")
    if labels.is_floating_point() or not labels.dim() or labels.shape != probabilities.shape[-2:-1]:
        got = f"{labels.dtype} {list(labels.shape)} for {list(probabilities.shape)}"
        raise ValueError(f"labels must be integers [N], one for each point of [..., N, O], got {got}")
    if bool(probabilities.isnan().any()):
        raise ValueError("probabilities hold NaN, which is no prediction")
    return probabilities, as_labels(labels, probabilities.shape[-1])


def layer_variances(draw: Draw, inputs: Tensor) -> list[Tensor]:
    """Return the mean variance of every layer's functions (Ober & Aitchison, 2021, Eq. 84).

        E_x[(1/N_l) Σ_λ V f_λ(x)]

    Args:
        draw: S functions of a network; more samples reduce the noise.
        inputs: `[N, D]`; standard normal in the paper.

    Returns:
        One tensor `[R]` for every layer that draws weights or functions, in squared units of its outputs.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.FromPrior())
    >>> len(layer_variances(net.draw(100), torch.randn(20, 1)))
    2
    """
    with exact_products():
        steps = record(draw.function, inputs).drawn
    return [step.output.var(0).mean((-2, -1)) for step in steps]
