"""Measures against brute force, and the layer variances of the prior against the analytic ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gilib
from gilib import metrics
from tests.support import D, assert_equal, assert_mean, normals, refusals, seeded, small_net


@settings(max_examples=30, deadline=None, derandomize=True)
@given(samples=st.integers(1, 6), points=st.integers(1, 6), shift=st.floats(-1e4, 1e4))
def test_log_mean_exp(samples, points, shift):
    values = normals(samples, points)
    expected = np.log(np.exp(values.numpy()).mean(0)) + shift
    assert_equal(metrics.log_mean_exp(values + shift), expected, 1e-10)


def test_log_likelihood_takes_the_mean_over_samples_before_the_logarithm_and_over_points_after():
    """Two samples, two points: every other order of the steps gives another number."""
    probabilities = np.array([[0.9, 0.1], [0.1, 0.5]])  # [S, N]
    right = np.log(probabilities.mean(0)).mean()
    joint, both = np.log(probabilities.prod(1).mean()) / 2, np.log(probabilities.mean())
    wrong = [np.log(probabilities).mean(), joint, both]
    actual = float(metrics.test_log_likelihood(torch.tensor(probabilities).log()))
    assert actual == pytest.approx(right, abs=1e-12)
    assert all(abs(actual - other) > 0.01 for other in wrong)


def test_rmse():
    mean, targets = normals(3, 7, 2), normals(7, 2, seed=1)
    expected = []
    for replica in mean.reshape(3, 14).tolist():
        squares = [(m - t) ** 2 for m, t in zip(replica, targets.flatten().tolist(), strict=True)]
        expected.append(math.sqrt(sum(squares) / 14))
    assert_equal(metrics.rmse(mean, targets), torch.tensor(expected, dtype=D))
    assert metrics.rmse(mean[0], targets).shape == ()
    each = metrics.rmse(mean.numpy(), targets.numpy(), per_output=True)
    assert_equal(each, torch.stack([metrics.rmse(mean[..., [o]], targets[:, [o]]) for o in range(2)], -1))


def test_entropy():
    probabilities = normals(3, 5, 4).softmax(-1)
    expected = [-sum(p * math.log(p) for p in row) for row in probabilities.reshape(15, 4).tolist()]
    assert_equal(metrics.entropy(probabilities).flatten(), torch.tensor(expected, dtype=D))
    certain = torch.eye(4, dtype=D)
    assert_equal(metrics.entropy(certain), torch.zeros(4))
    assert_equal(metrics.entropy(torch.full((4,), 0.25, dtype=D)), math.log(4))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(points=st.integers(1, 60), classes=st.integers(2, 5), bins=st.integers(1, 20), seed=st.integers(0, 99))
def test_calibration_curve_against_sorting(points, classes, bins, seed):
    probabilities = (2 * normals(points, classes, seed=seed)).softmax(-1)
    check_calibration(probabilities, torch.randint(classes, (points,), generator=seeded(seed)), bins)


@pytest.mark.parametrize("bins", [2, 4, 20])
def test_calibration_at_the_edges_of_bins(bins):
    probabilities = torch.tensor([[0.5, 0.5], [0.75, 0.25], [1.0, 0.0], [0.0, 1.0]], dtype=D)
    check_calibration(probabilities, torch.tensor([1, 0, 1, 1]), bins)


def check_calibration(probabilities, labels, bins):
    """Bins (a, b] by searching their edges; in empty ones there is nothing to say."""
    curve, error = metrics.calibration_curve(probabilities, labels, bins), 0.0
    confidence = probabilities.numpy().max(-1)
    right = probabilities.numpy().argmax(-1) == labels.numpy()
    place = np.searchsorted(np.arange(1, bins + 1) / bins, confidence)
    for b in range(bins):
        inside = place == b
        assert curve.counts[b] == inside.sum()
        if inside.any():
            assert float(curve.accuracy[b]) == pytest.approx(right[inside].mean(), abs=1e-12)
            assert float(curve.confidence[b]) == pytest.approx(confidence[inside].mean(), abs=1e-12)
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
        else:
            assert curve.accuracy[b].isnan() and curve.confidence[b].isnan()
    actual = float(metrics.expected_calibration_error(probabilities, labels, bins))
    assert actual == pytest.approx(error, abs=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(high=st.lists(st.integers(0, 9), min_size=1), low=st.lists(st.integers(0, 9), min_size=1))
def test_auroc_counts_pairs(high, low):
    """Scores with many ties, pair by pair."""
    pairs = [(one > other) + 0.5 * (one == other) for one in high for other in low]
    actual = metrics.auroc(torch.tensor(high), torch.tensor(low))
    assert float(actual) == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_measures_of_classifiers_against_scikit_learn(classes):
    """Probabilities with two digits, so that scores are tied; ours bins as (a, b], so none is on an edge."""
    reference = pytest.importorskip("sklearn.metrics")
    coarse = (normals(200, classes).softmax(-1) * 100).round() + 0.137
    probabilities = coarse / coarse.sum(-1, keepdim=True)
    labels = torch.multinomial(probabilities, 1, generator=seeded(3))[:, 0]
    high, low = (probabilities[labels == 1, 1], probabilities[labels != 1, 1])
    area = reference.roc_auc_score(labels == 1, probabilities[:, 1])
    assert float(metrics.auroc(high, low)) == pytest.approx(area, abs=1e-12)
    top = reference.accuracy_score(labels, probabilities.argmax(-1))
    assert float(metrics.accuracy(probabilities, labels)) == pytest.approx(top, abs=1e-12)
    loss = reference.log_loss(labels, probabilities, labels=range(classes))
    assert float(-probabilities.log()[torch.arange(200), labels].mean()) == pytest.approx(loss, abs=1e-12)


def test_whole_numbers_are_numbers():
    mean, targets = np.array([[1], [2]]), np.array([[1.9], [2.9]])
    for ours in (mean, torch.from_numpy(mean)):
        assert float(metrics.rmse(ours, targets)) == pytest.approx(0.9)
    assert float(metrics.rmse(torch.from_numpy(mean), torch.tensor([[2], [4]]))) == pytest.approx(2.5**0.5)


P, FEW, LABELS = normals(2, 6, 3).softmax(-1), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2, 0, 1, 2])
MEASURES = (metrics.accuracy, metrics.expected_calibration_error)
WRONG = [  # of every measure of classifiers
    (P[0], LABELS + 1, r"class labels must lie in 0 \.\.\. 2, got 1 \.\.\. 3"),
    (P[0] * torch.nan, LABELS, "probabilities hold NaN"),
    (P[0, :, 0], LABELS, r"labels must be integers \[N\], one for each point"),
    (P[0], LABELS[:, None], r"labels must be integers \[N\]"),
]
test_what_a_measure_does_not_take = refusals(
    [
        *((lambda f=f, p=p, y=y: f(p, y), message) for f in MEASURES for p, y, message in WRONG),
        *(
            (lambda n=n: metrics.rmse(normals(7, 1), normals(*n)), r"\[7, 1\]")
            for n in ((7,), (1, 1), (7, 2), (6, 1))
        ),
        (lambda: metrics.calibration_curve(P, LABELS), "average the samples"),
        (lambda: metrics.calibration_curve(2.0 * P[0], LABELS), "must be a distribution"),
        (lambda: metrics.expected_calibration_error(P[0], LABELS, bins=0), "bins must be an integer"),
        (lambda: metrics.auroc(torch.ones(0), torch.ones(2)), r"positive scores must be \[N\]"),
        (lambda: metrics.auroc(torch.ones(2), torch.full((2,), torch.nan)), "negative scores hold NaN"),
        (lambda: metrics.entropy(3.0 * P), "every row of probabilities must be a distribution"),
        (lambda: metrics.entropy(P * torch.nan), "every row of probabilities must be a distribution"),
    ]
)


def test_accuracy_of_every_sample():
    found = metrics.accuracy(torch.stack([torch.eye(3), torch.eye(3)[FEW]]), FEW)
    assert found.tolist() == [pytest.approx(2 / 3), 1.0]


def prior_variances(x, widths, relu):
    """V[F] = (width · E[input²] + 1) / (width + 1) under NealPrior with a bias; a ReLU halves E[F²]."""
    square, variances = x.square().mean(), []
    for width in widths:
        variances.append((width * square + 1) / (width + 1))
        square = variances[-1] / 2 if relu else variances[-1]
    return torch.stack(variances)


@pytest.mark.parametrize(("activation", "relu"), [(nn.ReLU, True), (None, False)])
def test_layer_variances_of_the_prior(activation, relu):
    net = gilib.models.mlp(1, (50, 50), 1, posterior=gilib.FromPrior(), activation=activation, dtype=D)
    x, generator = normals(40, 1, seed=1), seeded(2)
    repeated = [torch.stack(metrics.layer_variances(net.draw(50, generator=generator), x)) for _ in range(80)]
    assert_mean(torch.stack(repeated), prior_variances(x, (1, 50, 50), relu))


def test_layer_variances_by_brute_force_and_replica():
    net = small_net(gilib.GlobalInducing(), replicas=(2,))
    draw, x = net.draw(6, generator=seeded()), normals(4, 2)
    actual = metrics.layer_variances(draw, x)
    hidden = list(net.layers)
    assert len(actual) == sum(layer.has_weights for layer in hidden) == 2
    for values, variance in zip((draw.function.functions[0](x), draw(x)), actual, strict=True):
        expected = np.var(values.detach().numpy(), axis=0, ddof=1).mean((-2, -1))
        assert variance.shape == (2,)
        assert_equal(variance.detach(), expected)


def test_layer_variances_are_of_what_layers_draw_not_of_activations():
    """In nested layers, too; ReLU and normalisations do not count."""
    branch = gilib.Residual([gilib.Linear(3, 3)])
    first = gilib.Sequential([gilib.Linear(2, 3), gilib.layers.InducingBatchNorm()])
    layers = [first, nn.ReLU(), branch]
    draw = gilib.Network(normals(5, 2), layers).draw(4, generator=seeded())
    steps = gilib.record(draw, normals(6, 2)).steps  # of a draw as of its function
    assert len(steps) == 4
    found = metrics.layer_variances(draw, normals(6, 2))
    for value, k in zip(found, (0, 3), strict=True):
        assert_equal(value.detach(), steps[k].output.var(0).mean().detach())


def test_noise_level_is_the_error_of_labels_that_are_drawn_from_the_predictions():
    probabilities = (2.0 * normals(3000, 4)).softmax(-1)
    labels = torch.multinomial(probabilities, 400, replacement=True, generator=seeded(1)).T
    curves = [metrics.calibration_curve(probabilities, drawn) for drawn in labels]
    errors = torch.stack([curve.error for curve in curves])
    level = curves[0].noise_level
    assert torch.allclose(curves[1].noise_level, level)  # labels play no part in it
    assert abs(errors.mean() / level - 1.0) < 0.05 and level > 0.0
    sure = torch.tensor([[1.0, 0.0]] * 5)
    assert metrics.calibration_curve(sure, torch.zeros(5, dtype=torch.long)).noise_level == 0.0
