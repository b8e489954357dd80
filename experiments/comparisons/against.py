"""Compare gilib's recipes with what users would use instead, on the same splits, all with their defaults.

NGBoost is not a dependency: its runs fail with a message if it is not installed. "auto" is not trained: it is
the one of our models with the best ELBO, and its time is the sum of their times.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.common.measuring import significant
from experiments.comparisons import tasks
from experiments.comparisons.defaults import MORE
from experiments.comparisons.posteriors import SMALL
from experiments.comparisons.rivals import APART, CLASSES_ONLY, METHODS, OURS, REGRESSION_ONLY, prepare
from experiments.comparisons.tasks import MOONS, broken, measured, task
from experiments.labelled import classification_names
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record, diverged
from gilib.linalg import FactorisationError
from gilib.training import DivergenceError

LABELS = {
    "exact_gp": "GP on ≤ 2000 rows",
    "forest": "random forest",
    "boosting": "gradient boosting",
    "ngboost": "NGBoost",
    "logistic": "logistic regression",
    "ensemble": "five networks",
    "dropout": "MC dropout",
    "network": "gilib: network",
    "gp": "gilib: GP",
    "heteroscedastic_gp": "gilib: GP, varying noise",
    "deep_gp": "gilib: deep GP",
    "auto": "gilib: auto",
}


@dataclass(frozen=True)
class AgainstConfig:
    """One method on one split.

    Attributes:
        dataset: name of the set.
        method: key of `rivals.METHODS`.
        split: number of the split, and seed of everything random.
        steps: steps of trainings by gradients; 0 for the method's default.
        scale: key of `SCALES`.
        edition: edition of our recommendation; if there are several, the last one counts.
        fresh: number of new test points instead of the split's; 0 for none. If both are recorded, the new
            ones count, because a hundred test points say little about calibration.
    """

    dataset: str
    method: str
    split: int
    steps: int = 0
    scale: str = "paper"
    edition: int = 1
    fresh: int = 0


EDITIONS = {"network": 4, "gp": 4, "heteroscedastic_gp": 5}  # current editions of the recommendations
OF_CLASSES = EDITIONS | {"gp": 5}
FRESH, FEW = 10_000, 100  # new points of two moons; the second number is for smoke scale

SCALES: dict[str, tuple[tuple[str, ...], int, int]] = {  # sets, splits, steps
    "smoke": (("yacht", MOONS), 1, 5),
    "reduced": (SMALL, 1, 0),
    "long": ((*SMALL, *MORE), 2, 0),
    "paper": ((*SMALL, *MORE), 5, 0),
}


def grid(scale: str) -> Iterator[AgainstConfig]:
    """Yield, split by split and set by set, every method that suits the targets."""
    sets, splits, steps = SCALES[scale]
    for split, dataset, method in itertools.product(range(splits), sets, METHODS):
        left_out = (*unsuited(dataset), *(APART if scale == "smoke" else ()))
        if method not in left_out:
            editions = EDITIONS if is_regression(dataset) else OF_CLASSES
            fresh = 0 if dataset != MOONS else FEW if scale == "smoke" else FRESH
            yield AgainstConfig(dataset, method, split, steps, scale, editions.get(method, 1), fresh)


def unsuited(dataset: str) -> tuple[str, ...]:
    """Return the methods that do not suit the targets of a set."""
    return CLASSES_ONLY if is_regression(dataset) else REGRESSION_ONLY


def is_regression(dataset: str) -> bool:
    """Return whether the targets of a set are numbers."""
    return dataset != MOONS and dataset not in classification_names()


def run(config: AgainstConfig, job: Job) -> Record:
    """Fit, predict and measure one configuration.

    Returns:
        A record: the metrics of `tasks.measured` on the test data; for our models `elbo`, nats per training
        point on normalised targets; processor seconds for fit and prediction.
    """
    own = task(config.dataset, config.split, fresh=config.fresh)
    prepare(config.method)
    begin = time.process_time()
    try:
        found = METHODS[config.method](own, config.split, config.steps)
        metrics = {"process_seconds": time.process_time() - begin}
        metrics |= measured(found.prediction, own) | found.more
    except (DivergenceError, FactorisationError) as error:
        return broken(own, 0, error)
    if not all(math.isfinite(value) for value in metrics.values()):
        return broken(own, 0, "predictions are not finite")
    shown = {name: significant(value) for name, value in metrics.items()}
    return {"data": own.data, "metrics": shown, "curve": []}


def with_auto(records: Sequence[Record]) -> dict[tuple[str, int], dict[str, dict[str, float]]]:
    """Return metrics by (set, split) and method, with "auto" if all of our models are recorded.

    Args:
        records: records of one scale. If some of a set were tested on new points, its others do not count.
    """
    found: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    usable = [record for record in records if not diverged(record)]
    fresh = {record["config"]["dataset"] for record in usable if record["config"].get("fresh")}
    usable = [r for r in usable if r["config"].get("fresh") or r["config"]["dataset"] not in fresh]
    for record in sorted(usable, key=lambda record: record["config"].get("edition", 1)):
        config = record["config"]
        found.setdefault((config["dataset"], config["split"]), {})[config["method"]] = record["metrics"]
    for (dataset, _), own in found.items():
        ours = [name for name in OURS if name not in unsuited(dataset)]
        if set(ours) <= set(own):
            best = max(ours, key=lambda name: own[name]["elbo"])
            seconds = sum(own[name]["process_seconds"] for name in ours)
            own["auto"] = own[best] | {"process_seconds": seconds}
    return found


EXPERIMENTS = {
    "against": Experiment(
        "Recipes beside what users would take instead",
        AgainstConfig,
        grid,
        one_by_one(run),
        check=tasks.check,
        scales=tuple(SCALES),
    )
}
