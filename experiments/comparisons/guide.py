"""The posteriors of papers beside the recipes of `gilib.recommended`, on the same splits."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.comparisons.against import with_auto
from experiments.comparisons.posteriors import ORDER
from experiments.comparisons.rivals import OURS
from experiments.runner.records import Record, diverged

RECIPES = ("auto", *OURS)
POSTERIORS = tuple(method for method in ORDER if method != "hmc")  # which is on the smallest sets alone


def together(
    posteriors: Sequence[Record], against: Sequence[Record]
) -> dict[tuple[str, int], dict[str, dict[str, float]]]:
    """Metrics by set and split, then method, where all posteriors and all recipes are recorded.

    Processor seconds of training are `process_seconds` of either; those of recipes include prediction.

    Args:
        posteriors: records of the experiment of this name, of one scale; one that broke down has no metrics.
        against: records of the experiment of this name, of one scale; what is not ours is left out.
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
