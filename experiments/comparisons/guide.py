"""Compare the posteriors of papers with the recipes of `gilib.recommended`, on the same splits."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.comparisons.against import with_auto
from experiments.comparisons.posteriors import ORDER
from experiments.comparisons.rivals import OURS
from experiments.runner.records import Record, diverged

RECIPES = ("auto", *OURS)
POSTERIORS = tuple(method for method in ORDER if method != "hmc")  # HMC ran only on the smallest sets


def together(
    posteriors: Sequence[Record], against: Sequence[Record]
) -> dict[tuple[str, int], dict[str, dict[str, float]]]:
    """Return metrics by (set, split) and method, if all posteriors and all recipes are recorded.

    `process_seconds` are processor seconds of the training; for recipes they include prediction.

    Args:
        posteriors: records of the experiment "posteriors" at one scale; diverged ones have no metrics.
        against: records of the experiment "against" at one scale; only our models are used.
    """
    found: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for record in posteriors:
        config = record["config"]
        metrics = {} if diverged(record) else dict(record["metrics"])
        if "train_process_seconds" in metrics:
            metrics["process_seconds"] = metrics.pop("train_process_seconds")
        found.setdefault((config["dataset"], config["split"]), {})[config["method"]] = metrics
    beside = with_auto(against)
    return {
        cell: {name: own[name] for name in POSTERIORS} | {name: beside[cell][name] for name in RECIPES}
        for cell, own in found.items()
        if set(POSTERIORS) <= set(own) and set(RECIPES) <= set(beside.get(cell, {}))
    }
