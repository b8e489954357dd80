"""All posteriors of the book on the same published splits of UCI sets: grids, and the choice of settings.

The network has one hidden layer of 50 ReLU units (protein: 100), as in Kurle et al. (2024) and most tables of
these splits. It is compared under many posteriors, and with sparse and deep Gaussian processes. We do not
know the hyper-parameters of that paper's tables; these are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from experiments.common.choosing import Choice, Setting, choose
from experiments.kurle2024 import search as bali_search
from experiments.kurle2024.search import BaliSettings
from experiments.runner.identity import identity
from experiments.runner.records import Record, RecordError, by_identity, diverged, records_of
from gilib.data.regression_sets import find_set

SMALL = ("yacht", "boston", "energy", "concrete", "wine")
LARGE = ("kin8nm", "power", "naval", "protein")
PRIOR_VARIANCE = 3.0  # of all weights times √I, except for methods that choose their own

ADAM = (1e-2, 3e-2, 1e-1)  # learning rates
FASTER = (*ADAM, 3e-1)
NATURAL = (5e-2, 2e-1, 5e-1, 1.0)  # of rules that divide by a curvature
SEARCHED: dict[str, tuple[float, ...]] = {
    "map": (0.3, 1.0, 3.0),  # prior variance; of "ensemble" and "laplace", too
    "dropout": (0.001, 0.005, 0.02, 0.05),  # rate
    "bbb": ADAM,
    "bbb_tenth": ADAM,
    "bbb_hundredth": FASTER,
    "vadam": (1e-2, 3e-2, 1e-1, 3e-1),
    "vogn": NATURAL,
    "noisy_adam": NATURAL,
    "noisy_kfac": NATURAL,
    "ivon": (5e-2, 1e-1, 2e-1, 5e-1),
    "sghmc": (1e-2, 3e-2, 1e-1, 3e-1),
    "li": FASTER,
    "gi": ADAM,
    "fac_gi": ADAM,
    "sgp": FASTER,
    "dgp_gi": FASTER,
    "dsvi": FASTER,
    "star": (5e-3, 1e-2, 3e-2, 1e-1),  # the first is that of the code of Lindinger et al. (2020)
}
FOLLOWS = {"ensemble": "map", "laplace": "map"}
BALI: dict[str, str | None] = {"bali": "absolute", "bali_l": "absolute", "bali_paper": "relative"}
ORDER = (
    *("map", "ensemble", "dropout", "laplace", "bbb", "bbb_tenth", "bbb_hundredth", "vadam", "vogn"),
    *("noisy_adam", "noisy_kfac", "ivon", "sghmc", "li", "gi", "fac_gi", "bali", "bali_paper", "bali_l"),
    *("sgp", "dgp_gi", "dsvi", "star", "hmc"),
)
INDUCING = ("li", "gi", "fac_gi")
PROCESSES = ("sgp", "dgp_gi", "dsvi", "star")
STEP_SIZES = {"yacht": 0.05, "boston": 0.03, "energy": 0.02}  # of HMC, in deviations of the noise, by trial


@dataclass(frozen=True)
class PosteriorConfig:
    """One training on one split.

    Attributes:
        dataset: name of the set.
        method: one of `ORDER`.
        split: number of the published split.
        setting: for "map", "ensemble" and "laplace" the prior variance of the weights times √I; for "dropout"
            the rate; for "hmc" the noise variance, normalised; for others the learning rate. BALI has none.
        bali: settings of BALI; None for other methods.
        steps: steps of the rule; for "hmc" the states of each chain, with as many in burn-in.
        batch_size: points per step; all, if there are fewer.
        num_samples: draws per step.
        num_inducing: M, if there are inducing points.
        test_samples: draws for predictions and for the ELBO.
        leapfrog_steps: steps of every proposal of "hmc".
        scale: key of `SCALES`.
        images: number of training images of a split, which no other split has; 0 for other sets.
        prior: variance of the weights times √I, unless `setting` is that variance.
        jitter: jitter of the step size of "hmc".
    """

    dataset: str
    method: str
    split: int
    setting: float = 0.0
    bali: BaliSettings | None = None
    steps: int = 20_000
    batch_size: int = 1000
    num_samples: int = 1
    num_inducing: int = 100
    test_samples: int = 100
    leapfrog_steps: int = 100
    scale: str = "paper"
    images: int = 0
    prior: float = PRIOR_VARIANCE
    jitter: float = 0.0


@dataclass(frozen=True)
class Scale:
    """The size of the experiment.

    Attributes:
        small: sets with `splits` splits.
        splits: number of published splits of these.
        large: sets with `large_splits` splits.
        large_splits: number of published splits of these.
        bali_splits: number of splits of the large sets for BALI (not BALI-L), if so many are published.
        steps: steps for posteriors over weights, for inducing points, for Gaussian processes and for BALI;
            number of states for HMC.
        num_inducing: M.
        test_samples: see `PosteriorConfig`.
        leapfrog_steps: see `PosteriorConfig`.
        searched: scale of the searches that determined the settings.
        choosing: sets whose validation data determine the settings.
        hmc: sets with Hamiltonian Monte Carlo.
    """

    small: tuple[str, ...] = SMALL
    splits: int = 20
    large: tuple[str, ...] = LARGE
    large_splits: int = 5
    bali_splits: int = 20
    steps: tuple[int, int, int, int, int] = (20_000, 20_000, 20_000, 20_000, 5000)
    num_inducing: int = 100
    test_samples: int = 100
    leapfrog_steps: int = 100
    searched: str = "reduced"
    choosing: tuple[str, ...] = (*SMALL[:3], "kin8nm")
    hmc: tuple[str, ...] = ("yacht", "boston", "energy")


SCALES = {
    "smoke": Scale(("yacht",), 1, (), 0, 0, (60, 30, 10, 30, 20), 10, 10, 5, "smoke", ("yacht",), ("yacht",)),
    "reduced": Scale(
        splits=10, large_splits=5, bali_splits=5, steps=(2000, 1500, 800, 1000, 500), num_inducing=50
    ),
    "paper": Scale(),
}
JITTER = 0.3  # of the step size of HMC: with one length, effective sizes on energy fall to 45 of 1000 states
DRAWS = {"map": 1, "ensemble": 1, "laplace": 1, "sghmc": 1, **dict.fromkeys(BALI, 1), "gi": 2, "fac_gi": 2}


def search(scale: str) -> Iterator[PosteriorConfig]:
    """Yield the searched methods with all settings on validation data of the first split, set by set."""
    size = SCALES[scale]
    for dataset, (method, values) in itertools.product(size.choosing, SEARCHED.items()):
        for value in values:
            yield of_size(size, dataset, method, 0, scale, setting=value)


def tables(scale: str) -> Iterator[PosteriorConfig]:
    """Yield all methods on all sets, split by split; HMC needs the noise that global inducing learned.

    Raises:
        RecordError: if a search is not complete.
    """
    size = SCALES[scale]
    settings = chosen_settings(size.searched)
    bali = {method: chosen_bali(size.searched, method) for method in BALI}
    noises = _noises(scale)
    for dataset, split, method in _cells(size):
        if method in BALI:
            yield of_size(size, dataset, method, split, scale, bali=bali[method])
        elif method != "hmc":
            yield of_size(size, dataset, method, split, scale, setting=settings[method])
        elif dataset in size.hmc and (dataset, split) in noises:
            yield of_size(size, dataset, method, split, scale, setting=noises[dataset, split])


def _cells(size: Scale) -> Iterator[tuple[str, int, str]]:
    """Yield set, split and method; the first split of all sets comes before the second."""
    for split in range(max(size.splits, size.large_splits, size.bali_splits)):
        for dataset, method in itertools.product(size.small + size.large, ORDER):
            if split < _splits(size, dataset, method):
                yield dataset, split, method


def _splits(size: Scale, dataset: str, method: str) -> int:
    """Return the number of splits that a method runs on a data set."""
    if dataset in size.small:
        return size.splits
    wanted = size.bali_splits if method in ("bali", "bali_paper") else size.large_splits
    return min(wanted, find_set(dataset).num_splits)


def of_size(
    size: Scale,
    dataset: str,
    method: str,
    split: int,
    scale: str,
    setting: float = 0.0,
    bali: BaliSettings | None = None,
) -> PosteriorConfig:
    """Return one training of a scale; unknown methods train like posteriors over weights."""
    return PosteriorConfig(
        dataset,
        method,
        split,
        setting,
        bali,
        steps=size.steps[_kind(method)],
        batch_size=1000 if method in BALI or scale == "paper" else 500,
        num_samples=1 if method in PROCESSES else DRAWS.get(method, 4),
        num_inducing=size.num_inducing,
        test_samples=size.test_samples,
        leapfrog_steps=size.leapfrog_steps,
        scale=scale,
        jitter=JITTER if method == "hmc" else 0.0,
    )


def _kind(method: str) -> int:
    """Return the index of a method's steps in `Scale.steps`."""
    kinds = (INDUCING, PROCESSES, tuple(BALI), ("hmc",))
    return next((place for place, names in enumerate(kinds, 1) if method in names), 0)


def chosen_settings(scale: str) -> dict[str, float]:
    """Return the setting of every method on all sets, except BALI and HMC."""
    found = {method: choice.setting for method, choice in choices(scale).items()}
    return found | {own: found[other] for own, other in FOLLOWS.items()}


def choices(scale: str) -> dict[str, Choice[float]]:
    """Return, for every searched method, the best setting over all sets by validation log-likelihood.

    Args:
        scale: scale of the search.

    Raises:
        RecordError: if a part of the search is missing.
    """
    return best("posteriors_search", search(scale), lambda trial: trial.setting)


def best(
    name: str, trials: Iterable[PosteriorConfig], setting: Callable[[PosteriorConfig], Setting]
) -> dict[str, Choice[Setting]]:
    """Return, for every method, the best setting over all sets among the trials of a search.

    Args:
        name: name of the experiment.
        trials: all trials of one scale.
        setting: returns the setting of a trial.

    Raises:
        RecordError: if a trial is not recorded.
    """
    found = by_identity(name, PosteriorConfig)
    scores: dict[str, dict[Setting, dict[str, list[float | None]]]] = {}
    for trial in trials:
        record = found.get(identity(name, trial))
        if record is None:
            raise RecordError(
                "the search for the posteriors' settings is not complete: "
                f"first run `python -m experiments run {name} --scale {trial.scale}`"
            )
        by_set = scores.setdefault(trial.method, {}).setdefault(setting(trial), {})
        by_set.setdefault(trial.dataset, []).append(record["metrics"].get("log_likelihood"))
    return {method: choose(own) for method, own in scores.items()}


def chosen_bali(scale: str, method: str) -> BaliSettings:
    """Return the choice of `bali_search` among the settings with the prior of a method."""
    return bali_search.chosen(scale, BALI[method]).setting


def _noises(scale: str) -> dict[tuple[str, int], float]:
    """Return the noise that global inducing learned on each set and split, for HMC."""
    return {
        (record["config"]["dataset"], record["config"]["split"]): noise(record)
        for record in records_of("posteriors", PosteriorConfig)
        if record["scale"] == scale and record["config"]["method"] == "gi" and not diverged(record)
    }


def noise(record: Record) -> float:
    """Return the noise variance of a record, normalised, to three digits."""
    return float(f"{record['metrics']['noise_variance']:.3g}")
