"""The same posteriors on images: one hidden layer of 100 ReLU on Fashion-MNIST, MNIST being what is strange.

A split trains on 5000 images of its own, in the order of the set, and is tested on all test images. Left out
is what has no place here: stripes and arrow, which has one output, and HMC, whose chains over 80 000 weights
would take weeks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gilib.experiments.comparisons import posteriors
from gilib.experiments.comparisons.posteriors import BALI, DRAWS, INDUCING, PROCESSES, PosteriorConfig
from gilib.experiments.comparisons.tasks import image_task
from gilib.experiments.kurle2024.search import BaliSettings
from gilib.experiments.kurle2024.settings import frozen
from gilib.experiments.kurle2024.training import TrainingConfig

DATASET = "fashion-mnist"
ORDER = tuple(method for method in posteriors.ORDER if method not in ("star", "hmc"))
SEARCHED: dict[str, tuple[float, ...]] = posteriors.SEARCHED | {
    "map": (1.0, 10.0, 100.0),  # of MNIST, too, validation images choose a wide prior
    "dropout": (0.02, 0.05, 0.2),
    "vadam": (1e-2, 3e-2),
    "vogn": (5e-2, 2e-1, 5e-1),
    "noisy_adam": (5e-2, 2e-1, 5e-1),
    "noisy_kfac": (5e-2, 2e-1),
    "ivon": (1e-1, 5e-1),
    "sghmc": (1e-2, 3e-2, 1e-1),
    **dict.fromkeys(("bbb_hundredth", "li", "sgp", "dgp_gi", "dsvi"), posteriors.ADAM),
}


@dataclass(frozen=True)
class Scale:
    """How large the experiment is.

    Attributes:
        images: that a split trains on.
        splits: how many.
        steps: of networks' weights; of their inducing points; of Gaussian processes; of BALI.
        num_inducing: M.
        test_samples: see `PosteriorConfig`.
        searched: the scale of the search that chose settings.
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
    """Every searched method with all its settings on the validation images of the first split."""
    for method in ORDER:
        for value in SEARCHED.get(method, ()):
            yield _config(method, 0, scale, value)


def tables(scale: str) -> Iterator[PosteriorConfig]:
    """All methods, split by split.

    Raises:
        RecordError: if the search is not complete.
    """
    settings = chosen_settings(SCALES[scale].searched)
    for split, method in itertools.product(range(SCALES[scale].splits), ORDER):
        yield _config(method, split, scale, settings.get(method, 0.0))


def chosen_settings(scale: str) -> dict[str, float]:
    """Of every method but BALI the setting with which it is trained."""
    found = {
        method: choice.setting
        for method, choice in posteriors.best("posteriors_images_search", search(scale)).items()
    }
    return found | {own: found[other] for own, other in posteriors.FOLLOWS.items()}


def bali_settings(method: str) -> BaliSettings:
    """What validation images of MNIST chose in `bali_settings`."""
    own = frozen(DATASET, method)
    return BaliSettings(str(BALI[method]), own["prior_variance"], own["lr"], TrainingConfig.update_rate)


def _config(method: str, split: int, scale: str, setting: float) -> PosteriorConfig:
    size = SCALES[scale]
    kinds = (INDUCING, PROCESSES, tuple(BALI))
    return PosteriorConfig(
        DATASET,
        method,
        split,
        setting,
        bali_settings(method) if method in BALI else None,
        steps=size.steps[next((place for place, names in enumerate(kinds, 1) if method in names), 0)],
        batch_size=1000 if method in BALI else 500,
        num_samples=1 if method in PROCESSES else DRAWS.get(method, 4),
        num_inducing=size.num_inducing,
        test_samples=size.test_samples,
        scale=scale,
        images=size.images,
    )


def check(configs: Sequence[PosteriorConfig]) -> None:
    """Raise unless the images are here, or can be fetched."""
    for name, images in {(config.dataset, config.images) for config in configs}:
        image_task(name, 0, images)
