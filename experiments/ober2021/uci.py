"""The UCI regression sets: grids, and the choice of hyper-parameters.

Ober & Aitchison (2021), Sec. 3.3, App. K.1: Fig. 3, Fig. A4, Tables 5, 6 and 7.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from experiments.common.methods import METHODS
from experiments.runner.identity import identity
from experiments.runner.records import Record, RecordError, by_identity
from gilib.data.regression_sets import find_set

SETS = ("yacht", "boston", "energy", "concrete", "wine", "power", "kin8nm", "naval", "protein")
PRIORS = ("StandardPrior", "NealPrior", "ScalePrior")


@dataclass(frozen=True)
class UciConfig:
    """One training on one split; the defaults are the paper's settings.

    Attributes:
        dataset: name of the set.
        method: "fac" (with local reparameterisation), "li", "gi" or "fac_gi".
        prior: prior of all layers.
        split: number of the published split.
        lr: learning rate.
        batch_size: points per step.
        num_inducing: number of inducing points, at most all training points; 0 for methods without any.
        steps: gradient steps.
        num_samples: draws per step.
        test_samples: draws for the measurements.
        scale: key of `SCALES`.
    """

    dataset: str
    method: str
    prior: str
    split: int
    lr: float
    batch_size: int = 10000
    num_inducing: int = 10000
    steps: int = 10000
    num_samples: int = 10
    test_samples: int = 100
    scale: str = "paper"


@dataclass(frozen=True)
class SearchConfig(UciConfig):
    """One training of the search for learning rate and batch size, whose only result is the ELBO."""


@dataclass(frozen=True)
class Scale:
    """The size of an experiment.

    Attributes:
        sets: names of the data sets.
        splits: largest number of published splits.
        search_splits: number of splits in the search.
        fac_steps: steps for the factorised posterior.
        steps: steps for other posteriors.
        search_share: fraction of these steps in the search.
        fac_batches: batch sizes for the factorised posterior in the search.
        fac_rates: learning rates for the factorised posterior in the search.
        fac_samples: draws per step for the factorised posterior.
        batch_size: batch size for other posteriors.
        num_inducing: number of inducing points for other posteriors.
        rates: learning rates for other posteriors.
        samples: draws per step for other posteriors.
        searched: scale of the search that determined learning rates and batch sizes; "" for this one.
    """

    sets: tuple[str, ...] = SETS
    splits: int = 20
    search_splits: int = 3
    fac_steps: int = 25000
    steps: int = 10000
    search_share: float = 1.0
    fac_batches: tuple[int, ...] = (32, 100, 500)
    fac_rates: tuple[float, ...] = (3e-4, 1e-3, 3e-3, 1e-2)
    fac_samples: int = 10
    batch_size: int = 10000
    num_inducing: int = 10000
    rates: tuple[float, ...] = (3e-3, 1e-2)
    samples: int = 10
    searched: str = ""


SCALES = {
    "smoke": Scale(("yacht",), 2, 1, 60, 20, 0.5, (100,), (1e-2,), 2, 100, 10, (1e-2,), 2),
    "reduced": Scale(
        splits=3,
        search_splits=1,
        fac_steps=6000,
        steps=2000,
        search_share=0.5,
        fac_batches=(100,),
        fac_samples=5,
        batch_size=500,
        num_inducing=100,
        samples=2,
    ),
    "long": Scale(splits=5, searched="reduced"),  # the paper's trainings, a quarter of them
    "paper": Scale(),
}


def cells(scale: str) -> Iterator[tuple[str, str, str]]:
    """Yield data set, method and prior of every cell of the tables, small sets first."""
    return itertools.product(SCALES[scale].sets, METHODS, PRIORS)


def search(scale: str) -> Iterator[SearchConfig]:
    """Yield trainings with the learning rates and batch sizes of App. K.1 for every cell."""
    size = SCALES[scale]
    for dataset, method, prior in cells(scale):
        fac = method == "fac"
        for batch_size in size.fac_batches if fac else (size.batch_size,):
            for lr in size.fac_rates if fac else size.rates:
                for split in range(min(size.search_splits, find_set(dataset).num_splits)):
                    settings = _settings(size, method, size.search_share)
                    yield SearchConfig(dataset, method, prior, split, lr, batch_size, **settings, scale=scale)


def tables(scale: str) -> Iterator[UciConfig]:
    """Yield every cell whose search is complete, with the hyper-parameters of the best ELBO.

    Raises:
        RecordError: if no cell's search is complete.
    """
    size = SCALES[scale]
    search_scale = size.searched or scale
    searched = _searched(search_scale)
    ready = [cell for cell in cells(scale) if cell in searched]
    if not ready:
        raise RecordError(
            "no search for learning rates is complete: "
            f"first run `python -m experiments run uci_search --scale {search_scale}`"
        )
    for dataset, method, prior in ready:
        lr, batch_size = searched[dataset, method, prior]
        for split in range(min(size.splits, find_set(dataset).num_splits)):
            settings = _settings(size, method, 1.0)
            yield UciConfig(dataset, method, prior, split, lr, batch_size, **settings, scale=scale)


def _settings(size: Scale, method: str, share: float) -> dict[str, int]:
    if method == "fac":
        steps, samples, inducing = size.fac_steps, size.fac_samples, 0
    else:
        steps, samples, inducing = size.steps, size.samples, size.num_inducing
    return {"steps": max(1, round(share * steps)), "num_samples": samples, "num_inducing": inducing}


def _searched(scale: str) -> dict[tuple[str, str, str], tuple[float, int]]:
    """Return the best learning rate and batch size of every cell whose trials are all recorded."""
    found = by_identity("uci_search", SearchConfig)
    bounds: dict[tuple[str, str, str], dict[tuple[float, int], list[float | None]]] = {}
    for trial in search(scale):
        record = found.get(identity("uci_search", trial))
        trials = bounds.setdefault((trial.dataset, trial.method, trial.prior), {})
        trials.setdefault((trial.lr, trial.batch_size), []).append(None if record is None else _bound(record))
    return {
        cell: max(trials, key=lambda key: sum(trials[key]))  # type: ignore[arg-type]
        for cell, trials in bounds.items()
        if all(value is not None for values in trials.values() for value in values)
    }


def _bound(record: Record) -> float:
    """Return the final ELBO of a trial, or minus infinity if it diverged."""
    return float(record["metrics"].get("elbo", -float("inf")))


def group_key(config: UciConfig) -> Hashable:
    """Return the group of a configuration; configurations of a group train together.

    At paper scale, for accelerators, replicas differ in split, learning rate and prior. Smaller scales, for
    CPUs, separate priors, because StandardPrior's float64 would slow down the others. At long scale, where a
    training takes minutes to an hour on a CPU, configurations train alone: with so many points and draws
    replicas gain nothing, and single trainings are recorded earlier.
    """
    prior = "" if config.scale == "paper" else config.prior
    split = config.split if config.scale == "long" else None
    return config.dataset, config.method, prior, split, config.batch_size, config.num_inducing, config.steps
