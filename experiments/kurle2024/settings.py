"""The settings of every method, found on validation points because we do not know the paper's.

The search varies one setting at a time around a centre, and sometimes two for the baselines. `FROZEN` has its
choice: for each method and kind of data, the settings with the best mean validation log-likelihood (tables:
spambase and telescope; images: MNIST; regressions: yacht and energy, for BALI from `bali_search`). They were
fixed before any test point was read. Those of BALI and MAP on regressions were corrected later, by the search
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.kurle2024.measures import run
from experiments.kurle2024.tasks import IMAGES, TABLES, check
from experiments.kurle2024.training import TrainingConfig
from experiments.runner.experiment import Experiment, one_by_one

KL_WEIGHTS = (1.0, 0.1, 0.01)  # for Bayes by Backprop; we do not know the paper's three
CENTRE: dict[str, dict[str, Any]] = {
    "bali": {"lr": 0.3, "prior_variance": 10.0},
    "bali_paper": {"lr": 0.3, "prior_variance": 10.0},
    "map": {"lr": 0.03, "prior_variance": 1.0},
    "dropout": {"lr": 0.03, "prior_variance": 1.0},
    "bbb": {"lr": 0.03, "prior_variance": 1.0, "kl_weight": 0.1},
}
FROZEN: dict[str, dict[str, dict[str, Any]]] = {
    "tables": {
        "bali": {"lr": 0.3, "prior_variance": 10.0},
        "bali_paper": {"lr": 0.3, "prior_variance": 10.0},
        "map": {"lr": 0.03, "prior_variance": 10.0},
        "dropout": {"lr": 0.1, "prior_variance": 100.0},
        "bbb": {"lr": 0.1, "prior_variance": 10.0},
    },
    "images": {
        "bali": {"lr": 1.0, "prior_variance": 10.0},
        "bali_paper": {"lr": 0.3, "prior_variance": 1.0},
        "map": {"lr": 0.1, "prior_variance": 100.0},
        "dropout": {"lr": 0.1, "prior_variance": 100.0},
        "bbb": {"lr": 0.1, "prior_variance": 1.0},
    },
    "regressions": {
        "bali": {"lr": 1.0, "prior_variance": 100.0},
        "map": {"lr": 0.01, "prior_variance": 1.0},
        "dropout": {"lr": 0.03, "prior_variance": 10.0, "dropout": 0.01},
    },
}
VARIED: dict[str, dict[str, tuple[float, ...]]] = {
    "bali": {"prior_variance": (1.0, 3.0, 30.0, 100.0), "lr": (0.1, 1.0, 3.0), "update_rate": (0.1, 0.5)},
    "bali_paper": {"prior_variance": (1.0, 100.0), "lr": (1.0,)},
    "map": {"lr": (0.01, 0.1), "prior_variance": (10.0,)},
    "dropout": {"lr": (0.01, 0.1), "prior_variance": (10.0,)},
    "bbb": {"lr": (0.01, 0.1), "prior_variance": (10.0,)},
}


TOGETHER: dict[str, tuple[dict[str, float], ...]] = {  # changes of two settings at once
    method: ({"lr": 0.1, "prior_variance": 10.0}, {"lr": 0.1, "prior_variance": 100.0})
    for method in ("map", "dropout", "bbb")
}
ADAM: dict[str, tuple[dict[str, float], ...]] = {  # changes for the regressions
    "map": ({"lr": 0.01}, {}, {"lr": 0.1}, {"prior_variance": 10.0}),
    "dropout": ({"lr": 0.01}, {}, {"lr": 0.1}, {"dropout": 0.01}, {"dropout": 0.01, "prior_variance": 10.0}),
}
AT_THE_END: dict[str, Any] = {"stage": "search", "looks": 2}


def frozen(dataset: str, method: str) -> dict[str, Any]:
    """Return the settings of a method on a set."""
    return FROZEN[kind_of(dataset)]["bali" if method == "bali_l" else method]


def kind_of(dataset: str) -> str:
    """Return the kind of a data set, which determines its settings: "images", "tables" or "regressions".

    >>> kind_of("yacht")
    'regressions'
    """
    return "images" if dataset in IMAGES else "tables" if dataset in TABLES else "regressions"


def problem(dataset: str, scale: str) -> dict[str, Any]:
    """Return width, depth and length of the training on a set."""
    if scale == "smoke":
        return {"steps": 3, "width": 5, "looks": 2, "samples": 2}
    if dataset in IMAGES:
        if scale == "reduced":
            return {"steps": 80, "images": 10_000, "samples": 30}
        return {"steps": 2400}  # 40 epochs
    if kind_of(dataset) == "regressions":
        return {"steps": 1000 if scale == "reduced" else 20_000, "width": 50, "depth": 1}
    return {"steps": 150 if scale == "reduced" else 2000, "width": 100}


def search(scale: str) -> Iterator[TrainingConfig]:
    """Yield the centre of every method, then changes of one setting at a time."""
    sets = ("spambase",) if scale == "smoke" else ("spambase", "telescope", "mnist")
    methods = ("bali", "map") if scale == "smoke" else tuple(CENTRE)
    for dataset in sets:
        for method in methods:
            changes: list[dict[str, float]] = [{}]
            changes += [{name: value} for name, values in VARIED[method].items() for value in values]
            changes += TOGETHER.get(method, ())
            for change in changes[:1] if scale == "smoke" else changes:
                given = problem(dataset, scale) | CENTRE[method] | change
                yield TrainingConfig(dataset, method, 0, **given | AT_THE_END, scale=scale)
    if scale != "smoke":
        yield from _rates(scale)


def _rates(scale: str) -> Iterator[TrainingConfig]:
    """Yield the trainings on regressions, for methods other than BALI, which `bali_search` covers."""
    for dataset in ("yacht", "energy"):
        for method, changes in ADAM.items():
            for change in changes:
                given = problem(dataset, scale) | CENTRE[method] | change
                yield TrainingConfig(dataset, method, 0, **given | AT_THE_END, scale=scale)


EXPERIMENTS = {
    "bali_settings": Experiment(
        "Settings of BALI and its baselines, by validation points",
        TrainingConfig,
        search,
        one_by_one(run),
        check=check,
    ),
}
