"""The posteriors on images: 100 ReLU units on Fashion-MNIST, with MNIST out of distribution.

Each split trains on 5000 different images, in the order of the set, and is tested on all test images. Stripes
and arrow is left out because it has one output, and HMC because chains over 80 000 weights would take weeks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from experiments.comparisons import posteriors
from experiments.comparisons.posteriors import (
    BALI,
    DRAWS,
    INDUCING,
    PRIOR_VARIANCE,
    PROCESSES,
    PosteriorConfig,
)
from experiments.comparisons.tasks import image_task
from experiments.kurle2024.search import BaliSettings
from experiments.kurle2024.settings import frozen
from experiments.kurle2024.training import TrainingConfig
from experiments.runner.records import RecordError

DATASET, SEARCH = "fashion-mnist", "posteriors_images_search"
ORDER = tuple(method for method in posteriors.ORDER if method not in ("star", "hmc"))
RATES = (3e-3, *posteriors.ADAM)
NATURAL = (5e-2, 2e-1, 5e-1, 1.0)
SEARCHED: dict[str, tuple[float, ...]] = {
    "map": (1.0, 10.0, 100.0),  # of MNIST, too, validation images choose a wide prior
    "dropout": (0.005, 0.01, 0.02, 0.05, 0.2),
    "bbb_hundredth": (1e-3, *RATES),
    "vadam": posteriors.ADAM,
    "vogn": NATURAL,
    "noisy_adam": NATURAL,
    "noisy_kfac": NATURAL[:3],
    "ivon": (1e-1, 5e-1, 1.0),
    "sghmc": posteriors.ADAM,
    **dict.fromkeys(("bbb", "bbb_tenth", *INDUCING, "sgp", "dgp_gi", "dsvi"), RATES),
}
PRIORS = (1.0, 10.0, 30.0)  # further prior variances, for networks whose setting is not a prior variance


class Tuned(NamedTuple):
    """The settings that validation images determine.

    Attributes:
        setting: see `PosteriorConfig`.
        prior: see `PosteriorConfig`.
    """

    setting: float = 0.0
    prior: float = PRIOR_VARIANCE


@dataclass(frozen=True)
class Scale:
    """The size of the experiment.

    Attributes:
        images: number of training images of a split.
        splits: number of splits.
        steps: steps for posteriors over weights, for inducing points, for Gaussian processes and for BALI.
        num_inducing: M.
        test_samples: see `PosteriorConfig`.
        searched: scale of the search that determined the settings.
    """

    images: int = 5000
    splits: int = 12
    steps: tuple[int, int, int, int] = (20_000, 20_000, 20_000, 2000)
    num_inducing: int = 100
    test_samples: int = 100
    searched: str = "reduced"


SCALES = {
    "smoke": Scale(200, 1, (20, 4, 4, 10), 40, 4, "smoke"),
    "reduced": Scale(splits=3, steps=(2000, 2000, 1000, 300)),
    "paper": Scale(),
}


def search(scale: str) -> Iterator[PosteriorConfig]:
    """Yield the trials on validation images of the first split: settings, then priors for the best setting.

    The priors can only be tried after all settings are recorded, so the experiment must be run twice.
    """
    settings = [
        _config(method, 0, scale, Tuned(value)) for method in ORDER for value in SEARCHED.get(method, ())
    ]
    return itertools.chain(settings, _priors(settings, scale))


def _priors(settings: Sequence[PosteriorConfig], scale: str) -> Iterator[PosteriorConfig]:
    """Yield trials of other priors for every network with a posterior over its weights."""
    try:
        chosen = posteriors.best(SEARCH, settings, lambda trial: trial.setting)
    except RecordError:
        return
    for method, prior in itertools.product(chosen, PRIORS):
        if method != "map" and method not in PROCESSES:
            yield _config(method, 0, scale, Tuned(chosen[method].setting, prior))


def tables(scale: str) -> Iterator[PosteriorConfig]:
    """Yield all methods, split by split.

    Raises:
        RecordError: if the search is not complete.
    """
    settings = chosen_settings(SCALES[scale].searched)
    for split, method in itertools.product(range(SCALES[scale].splits), ORDER):
        yield _config(method, split, scale, settings.get(method, Tuned()))


def chosen_settings(scale: str) -> dict[str, Tuned]:
    """Return the settings of every method except BALI."""
    trials = posteriors.best(SEARCH, search(scale), lambda trial: Tuned(trial.setting, trial.prior))
    found = {method: choice.setting for method, choice in trials.items()}
    return found | {own: found[other] for own, other in posteriors.FOLLOWS.items()}


def bali_settings(method: str) -> BaliSettings:
    """Return BALI's settings, which the experiment `bali_settings` chose on validation images of MNIST."""
    own = frozen(DATASET, method)
    return BaliSettings(str(BALI[method]), own["prior_variance"], own["lr"], TrainingConfig.update_rate)


def _config(method: str, split: int, scale: str, tuned: Tuned) -> PosteriorConfig:
    size = SCALES[scale]
    kinds = (INDUCING, PROCESSES, tuple(BALI))
    return PosteriorConfig(
        DATASET,
        method,
        split,
        tuned.setting,
        bali_settings(method) if method in BALI else None,
        steps=size.steps[next((place for place, names in enumerate(kinds, 1) if method in names), 0)],
        batch_size=1000 if method in BALI else 500,
        num_samples=1 if method in PROCESSES else DRAWS.get(method, 4),
        num_inducing=size.num_inducing,
        test_samples=size.test_samples,
        scale=scale,
        images=size.images,
        prior=tuned.prior,
    )


def check(configs: Sequence[PosteriorConfig]) -> None:
    """Check that the images are on this machine, or can be downloaded."""
    for name, images in {(config.dataset, config.images) for config in configs}:
        image_task(name, 0, images)
