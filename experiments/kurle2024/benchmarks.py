"""Classification, out-of-distribution data and convergence (Kurle et al., 2024, Sec. 5).

Table 2, Figs. 2, 3 and 7. Our networks have 2 × 200 ReLU units for images, 2 × 100 for tables, and 1 × 50 for
yacht and energy, because we do not know the paper's widths and "leaky tanh". `experiments.kurle2024.settings`
has the other settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.kurle2024.measures import run
from experiments.kurle2024.settings import KL_WEIGHTS, frozen, problem
from experiments.kurle2024.tasks import TABLES, check
from experiments.kurle2024.training import TrainingConfig
from experiments.runner.experiment import Experiment, one_by_one

COMPARED = ("bali", "map", "dropout", "bali_paper")


def _configs(
    datasets: Sequence[str], splits: int, methods: Sequence[str], scale: str, **given: Any
) -> Iterator[TrainingConfig]:
    """Yield all methods on all sets, split by split; Bayes by Backprop with every factor of its KL term."""
    for split in range(splits):
        for dataset in datasets:
            for method in methods:
                for weight in KL_WEIGHTS if method == "bbb" else (1.0,):
                    settings = problem(dataset, scale) | frozen(dataset, method) | {"kl_weight": weight}
                    yield TrainingConfig(dataset, method, split, **settings | given, scale=scale)


def tabular(scale: str) -> Iterator[TrainingConfig]:
    """Yield the trainings on tables (Table 2); Diabetes, whose file is not included, only at paper scale."""
    if scale == "smoke":
        return _configs(TABLES[:1], 1, ("bali", "bbb"), scale)
    sets, splits = {"reduced": (TABLES[:2], 3), "paper": (TABLES, 20)}[scale]
    return _configs(sets, splits, (*COMPARED, "bbb"), scale)


def images(scale: str) -> Iterator[TrainingConfig]:
    """Yield the trainings on the images of Table 2 and Fig. 3; each set is out of distribution for the other.

    The last ones are of BALI with a constant step size, as in the paper.
    """
    if scale == "smoke":
        yield from _configs(("mnist-500",), 1, ("bali", "bbb"), scale, stage="curve")
        return
    fewer: dict[str, Any] = {"steps": 150, "looks": 16, "samples": 20}
    seeds, given = (1, fewer) if scale == "reduced" else (5, {})
    given |= {"stage": "curve"}
    yield from _configs(("mnist", "fashion-mnist"), seeds, (*COMPARED, "bbb"), scale, **given)
    for method in ("bali", "bali_paper"):
        yield from _configs(("mnist", "fashion-mnist"), seeds, (method,), scale, **given, decay=False)


def convergence(scale: str) -> Iterator[TrainingConfig]:
    """Yield the trainings of Figs. 2 and 7, which show convergence over iterations and seconds."""
    sets = ("yacht", "energy", "spambase", "telescope", "mnist", "fashion-mnist")
    if scale == "smoke":
        return _configs(("yacht",), 1, ("bali_l", "map"), scale, stage="curve")
    return _configs(sets, 5, ("bali", "bali_l", "map", "dropout"), scale, stage="curve")


EXPERIMENTS = {
    name: Experiment(about, TrainingConfig, grid, one_by_one(run), check=check)
    for name, about, grid in (
        ("bali_tabular", "Table 2: spam, showers of particles, and diabetes", tabular),
        ("bali_images", "Table 2 and Fig. 3: MNIST and Fashion-MNIST, each out of the other's sight", images),
        ("bali_convergence", "Figs. 2 and 7: BALI against MAP and dropout, step by step", convergence),
    )
}
