"""Every posterior of the book on the same published splits of UCI sets: grids, and how settings are chosen.

What is compared is a network with one hidden layer of 50 ReLU (protein: 100), as in Kurle et al. (2024) and
most tables of these splits, under many posteriors, beside sparse and deep Gaussian processes. The
hyper-parameters of the tables in that paper are lost; these are ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from experiments.common.choosing import Choice, Setting, choose
from experiments.kurle2024 import search as bali_search
from experiments.kurle2024.search import BaliSettings
from experiments.runner.identity import identity, record_identity
from experiments.runner.records import Record, RecordError, diverged, recorded
from gilib.data import load_uci
from gilib.data.tables.regression_sets import find_set

SMALL = ("yacht", "boston", "energy", "concrete", "wine")
LARGE = ("kin8nm", "power", "naval", "protein")
PRIOR_VARIANCE = 3.0  # of all weights times √I, but for those methods that have one of their own

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
        split: published split.
        setting: of "map", "ensemble" and "laplace" the prior variance of the weights times √I; of "dropout"
            the rate; of "hmc" the noise variance, normalised; of others the learning rate. BALI has none.
        bali: its settings; None for other methods.
        steps: of the rule; of "hmc" the states of each chain, as many in burn-in.
        batch_size: points a step; all, if there are fewer.
        num_samples: draws a step.
        num_inducing: M, where there are inducing points.
        test_samples: draws that predict, and that measure the ELBO.
        leapfrog_steps: of every proposal of "hmc".
        scale: key of `SCALES`.
        images: of a set of images: how many a split trains on, which no other split has.
        prior: variance of the weights times √I, of networks that have none of their own above.
        jitter: of the step size of "hmc".
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
    """How large the experiment is.

    Attributes:
        small: sets of which there are `splits`.
        splits: so many published ones.
        large: sets of which there are `large_splits`.
        large_splits: likewise.
        bali_splits: of the large sets for BALI without samples of outputs, if so many are published.
        steps: of networks' weights; of their inducing points; of Gaussian processes; of BALI; states of HMC.
        num_inducing: M.
        test_samples: see `PosteriorConfig`.
        leapfrog_steps: likewise.
        searched: the scale of the searches that chose settings.
        choosing: sets whose validation data choose.
        hmc: sets that have Hamiltonian Monte Carlo.
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
    """Every searched method with all its settings on the validation data of the first split, set by set."""
    size = SCALES[scale]
    for dataset, (method, values) in itertools.product(size.choosing, SEARCHED.items()):
        for value in values:
            yield of_size(size, dataset, method, 0, scale, setting=value)


def tables(scale: str) -> Iterator[PosteriorConfig]:
    """All methods on all sets, split by split; HMC where global inducing has learned the noise.

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
    """Set, split and method; the first split of all sets before the second."""
    for split in range(max(size.splits, size.large_splits, size.bali_splits)):
        for dataset, method in itertools.product(size.small + size.large, ORDER):
            if split < _splits(size, dataset, method):
                yield dataset, split, method


def _splits(size: Scale, dataset: str, method: str) -> int:
    """How many of a set."""
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
    """One training of a scale; a method that is not of ours trains like a network's weights."""
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
    """The place of a method's steps in `Scale.steps`."""
    kinds = (INDUCING, PROCESSES, tuple(BALI), ("hmc",))
    return next((place for place, names in enumerate(kinds, 1) if method in names), 0)


def chosen_settings(scale: str) -> dict[str, float]:
    """Of every method but BALI and HMC the setting with which it is trained on all sets."""
    found = {method: choice.setting for method, choice in choices(scale).items()}
    return found | {own: found[other] for own, other in FOLLOWS.items()}


def choices(scale: str) -> dict[str, Choice[float]]:
    """Of every searched method the setting that serves all sets of the search, by validation log-likelihood.

    Args:
        scale: of the search.

    Raises:
        RecordError: if a part of the search is missing.
    """
    return best("posteriors_search", search(scale), lambda trial: trial.setting)


def best(
    name: str, trials: Iterable[PosteriorConfig], setting: Callable[[PosteriorConfig], Setting]
) -> dict[str, Choice[Setting]]:
    """The same of the trials of any search.

    Args:
        name: of the experiment.
        trials: all of them, of one scale.
        setting: of a trial: what is to be chosen.

    Raises:
        RecordError: if one of them is not recorded.
    """
    found = {record_identity(r, PosteriorConfig): r for r in recorded(name, PosteriorConfig)}
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
    """What `bali_search` chose among the settings with the prior of a method."""
    return bali_search.chosen(scale, BALI[method]).setting


def _noises(scale: str) -> dict[tuple[str, int], float]:
    """The noise that global inducing learned on each set and split, which HMC takes."""
    return {
        (record["config"]["dataset"], record["config"]["split"]): noise(record)
        for record in recorded("posteriors", PosteriorConfig)
        if record["scale"] == scale and record["config"]["method"] == "gi" and not diverged(record)
    }


def noise(record: Record) -> float:
    """The noise variance of a record, to three digits, normalised."""
    return float(f"{record['metrics']['noise_variance']:.3g}")


def check(configs: Sequence[PosteriorConfig]) -> None:
    """Raise unless every data set is here, or can be fetched."""
    for name in dict.fromkeys(config.dataset for config in configs):
        load_uci(name)
