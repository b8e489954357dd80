"""Measures of every posterior: accuracy, density, calibration, and the distance to HMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import significant
from experiments.runner.records import Record, diverged
from gilib.likelihoods.mixtures import GaussianPrediction

LEVELS = tuple(k / 20 for k in range(1, 20))  # probabilities of the quantiles
DIGITS = 4  # significant digits of the records of single test points


def measure(found: GaussianPrediction, targets: Tensor, y_std: Tensor) -> dict[str, float]:
    """Measure a prediction of normalised targets.

    Args:
        found: prediction of `[N, 1]` targets, normalised.
        targets: `[N, 1]`, normalised.
        y_std: standard deviation of the targets in the units of the data.

    Returns:
        `rmse` and `log_likelihood` (nats per point) in the units of the data; `coverage_50` and
        `coverage_90`, the fractions of targets in the central intervals with these probabilities;
        `calibration_error`.
    """
    shares = below(found, targets)
    return {
        "rmse": float(gilib.metrics.rmse(found.mean, targets) * y_std),
        "log_likelihood": float(found.log_prob(targets).mean() - y_std.log()),
        "coverage_50": shares[0.75] - shares[0.25],
        "coverage_90": shares[0.95] - shares[0.05],
        "calibration_error": calibration_error(shares),
    }


def below(found: GaussianPrediction, targets: Tensor) -> dict[float, float]:
    """Return, for every level, the fraction of targets up to the predictive quantile."""
    return {level: float((targets <= found.quantile(level)).double().mean()) for level in LEVELS}


def calibration_error(shares: Mapping[float, float]) -> float:
    """Return the mean gap between quantiles' probabilities and the fractions of targets below them.

        (1/L) Σ_p |#{n: y_n ≤ q_n(p)} / N - p|     (Kuleshov, Fenner & Ermon, 2018, with an absolute value)

    >>> round(calibration_error({0.25: 0.25, 0.75: 0.5}), 3)
    0.125
    """
    return sum(abs(share - level) for level, share in shares.items()) / len(shares)


def moments(found: GaussianPrediction, noise_variance: Tensor) -> dict[str, list[float]]:
    """Return mean, deviation with noise, and deviation of the function for every test point, to four digits.

    Args:
        found: prediction of `[N, 1]` targets, normalised.
        noise_variance: noise variance of the prediction; one for each member of an ensemble.
    """
    variance = found.sd.square()
    function = (variance - noise_variance.mean()).clamp_min(0.0)
    rows = {"mean": found.mean, "sd": found.sd, "function_sd": function.sqrt()}
    return {
        name: [significant(value, DIGITS) for value in values[..., 0].tolist()]
        for name, values in rows.items()
    }


def distance(own: Mapping[str, Sequence[float]], reference: Mapping[str, Sequence[float]], of: str) -> float:
    """Return the mean distance W₂ of predictions to a reference, in units of the reference's σ.

        (1/N) Σ_n √((m_n - μ_n)² + (s_n - σ_n)²) / σ_n

    The root is the 2-Wasserstein distance of two Gaussians with these moments, and a lower bound for any two
    distributions with these moments (Gelbrich, 1990). The distance is 1 for a point mass at the reference's
    mean.

    Args:
        own: moments of the predictions, from `moments`.
        reference: moments of the reference at the same points.
        of: "function_sd" to compare functions, or "sd" to compare predictions with noise.

    Raises:
        ValueError: if the numbers of points differ.
    """
    if len(own["mean"]) != len(reference["mean"]):
        raise ValueError(
            f"a distance is between predictions of the same test points, got {len(own['mean'])} and "
            f"{len(reference['mean'])}: take records of the same set and split"
        )
    columns = (own["mean"], own[of], reference["mean"], reference[of])
    m, s, mu, sigma = (torch.tensor(values, dtype=torch.float64) for values in columns)
    return float((torch.hypot(m - mu, s - sigma) / sigma).mean())


def distances(records: Sequence[Record], of: str = "function_sd") -> dict[tuple[str, int, str], float]:
    """Return the distance to HMC by (set, split, method), for all records with HMC on the same split.

    Args:
        records: records of the experiment "posteriors" at one scale.
        of: see `distance`.
    """
    known = {_cell(record): record for record in records if "test_points" in record and not diverged(record)}
    truths = {(name, split): record for (name, split, method), record in known.items() if method == "hmc"}
    return {
        cell: distance(record["test_points"], truths[cell[:2]]["test_points"], of)
        for cell, record in known.items()
        if cell[2] != "hmc" and cell[:2] in truths
    }


def _cell(record: Record) -> tuple[str, int, str]:
    config = record["config"]
    return config["dataset"], config["split"], config["method"]
