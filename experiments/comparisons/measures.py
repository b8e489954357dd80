"""What is measured of every posterior: accuracy, density, calibration, and the distance to HMC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

import gilib
from experiments.runner.records import Record, diverged
from gilib.likelihoods.mixtures import GaussianPrediction

LEVELS = tuple(k / 20 for k in range(1, 20))  # probabilities at which quantiles are looked at
DIGITS = 4  # of what is recorded of each test point


def measure(found: GaussianPrediction, targets: Tensor, y_std: Tensor) -> dict[str, float]:
    """How well normalised targets are predicted.

    Args:
        found: of `[N, 1]` points, normalised.
        targets: `[N, 1]`, normalised.
        y_std: what a unit is in the data's.

    Returns:
        `rmse` and `log_likelihood` (nats per point) in the data's units; `coverage_50` and `coverage_90`, the
        shares of targets in the central intervals of these probabilities; `calibration_error`, see there.
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
    """The share of targets that are at most the predictive quantile of every level."""
    return {level: float((targets <= found.quantile(level)).double().mean()) for level in LEVELS}


def calibration_error(shares: Mapping[float, float]) -> float:
    """Mean distance of the shares of targets below quantiles from the quantiles' probabilities.

        (1/L) Σ_p |#{n: y_n ≤ q_n(p)} / N - p|     (Kuleshov, Fenner & Ermon, 2018, with an absolute value)

    >>> round(calibration_error({0.25: 0.25, 0.75: 0.5}), 3)
    0.125
    """
    return sum(abs(share - level) for level, share in shares.items()) / len(shares)


def moments(found: GaussianPrediction, noise_variance: Tensor) -> dict[str, list[float]]:
    """Of every test point, normalised, to four digits: mean, deviation with noise, and of the function.

    Args:
        found: of `[N, 1]` points.
        noise_variance: that is in the prediction; of members of an ensemble, one each.
    """
    variance = found.sd.square()
    function = (variance - noise_variance.mean()).clamp_min(0.0)
    rows = {"mean": found.mean, "sd": found.sd, "function_sd": function.sqrt()}
    return {name: [_digits(value) for value in values[..., 0].tolist()] for name, values in rows.items()}


def distance(own: Mapping[str, Sequence[float]], reference: Mapping[str, Sequence[float]], of: str) -> float:
    """How far predictions are from the reference's: the mean over test points of W₂, in its σ.

        (1/N) Σ_n √((m_n - μ_n)² + (s_n - σ_n)²) / σ_n

    The root is the 2-Wasserstein distance of two Gaussians with these moments, and at most that of any two
    distributions with them (Gelbrich, 1990). 1 is as far as a point at the reference's mean is, whose s is 0.

    Args:
        own: as `moments` gives them.
        reference: likewise, at the same points.
        of: "function_sd", functions alone; or "sd", predictions with their noise.

    Raises:
        ValueError: if they are of other points.
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
    """By set, split and method the distance to HMC, of all records of `posteriors` that have it beside them.

    Args:
        records: of one scale.
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


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
