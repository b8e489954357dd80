"""Compare your own posterior with those of the book: train it like them, on splits that are recorded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import torch
from tqdm.auto import tqdm

from experiments import plots
from experiments.comparisons.methods import METHODS, Method, adam, perceptron
from experiments.comparisons.posteriors import LARGE, ORDER, SCALES, SMALL, of_size
from experiments.comparisons.posteriors_run import trained
from experiments.comparisons.ranking import Ranking, rank
from experiments.comparisons.tasks import Task, task, validation_task
from experiments.runner.experiment import Job
from experiments.selecting import load_records
from experiments.tables import number, table
from gilib.posteriors import Posterior
from gilib.validation import check_choice, check_count, check_positive

SCALE = "reduced"
Cell = tuple[str, int]  # set and split


@dataclass(frozen=True)
class Comparison:
    """The results of all methods, shown as a table with the best rank first.

    Attributes:
        scores: for each cell the test log-likelihood of each method, in nats per point and units of the data.
            None means that the training broke down, which ranks last.
        own: the methods that were trained now, with their settings.
    """

    scores: Mapping[Cell, Mapping[str, float | None]]
    own: Mapping[str, float]

    @property
    def ranking(self) -> Ranking:
        """Ranking over the cells."""
        return rank(list(self.scores.values()))

    def _repr_markdown_(self) -> str:
        sets = list(dict.fromkeys(name for name, _ in self.scores))
        rows = [
            [
                f"**{name}** at {self.own[name]:g}" if name in self.own else plots.METHODS[name].label,
                *(number(self._mean(name, dataset)) for dataset in sets),
                number(place, 1),
            ]
            for name, place in self.ranking.means.items()
        ]
        return table(["method", *sets, "mean rank"], rows)

    def __str__(self) -> str:
        """Return the table that notebooks show."""
        return self._repr_markdown_()

    def _mean(self, name: str, dataset: str) -> float | None:
        found = [own[name] for (of, _), own in self.scores.items() if of == dataset]
        return None if None in found else mean(score for score in found if score is not None)


def compare(
    methods: Mapping[str, Posterior | Method],
    sets: Sequence[str] = ("yacht", "boston", "energy"),
    splits: int = 2,
    setting: float | Sequence[float] = 1e-2,
) -> Comparison:
    """Train methods on published splits and rank them among the recorded ones, at reduced scale.

    The new results are not recorded. HMC is left out, because it has only three sets.

    Args:
        methods: methods by name. A posterior is used for both layers of the comparison's network and trained
            by Adam for as many steps as the other networks; global inducing points start at training points.
            A `Method` defines its own network and rule.
        sets: some of the nine regressions.
        splits: number of splits of each set, from the first.
        setting: Adam's rate for a posterior; for a `Method`, the value of `PosteriorConfig.setting` that its
            rule and network read. If there are several, the best one on validation data is used: a fifth of
            the training part of the first set's first split. (Recorded methods chose theirs on four sets.)

    Raises:
        ValueError: if there is no method, a name is in use, a set is not among the nine, or it has fewer
            recorded splits.
        TypeError: if a method is neither a posterior nor a `Method`.

    >>> print(compare({"mine": gilib.Factorised()}, sets=["yacht"], splits=1))  # doctest: +SKIP
    """
    new = _checked(methods)
    check_count(splits, "splits")
    tried = [setting] if isinstance(setting, int | float) else list(setting)
    for value in tried:
        check_positive(value, "setting")
    if not tried:
        raise ValueError("compare needs a setting, got none")
    if not sets or isinstance(sets, str):
        raise ValueError(f'compare needs a list of sets, such as ["yacht"], got {sets!r}')
    for name in sets:
        check_choice(name, (*SMALL, *LARGE), "set")
    scores = _recorded()
    cells = list(itertools.product(dict.fromkeys(sets), range(splits)))
    if missing := [f"{name} {split}" for name, split in cells if (name, split) not in scores]:
        raise ValueError(f"the comparison has no split {missing[0]} on record: ask for fewer splits")
    found = {cell: dict(scores[cell]) for cell in cells}
    chosen = {name: _best(method, name, sets[0], tried) for name, method in new.items()}
    trials = list(itertools.product(cells, new.items()))
    for cell, (name, method) in tqdm(trials, desc="compare", unit="training"):
        found[cell][name] = _score(method, name, task(*cell), cell, chosen[name])
    return Comparison(found, chosen)


def _best(method: Method, name: str, dataset: str, tried: Sequence[float]) -> float:
    """Return the setting that predicts validation data best."""
    if len(tried) == 1:
        return tried[0]
    held_out, cell = validation_task(dataset, 0), (dataset, 0)
    scores = [_score(method, name, held_out, cell, value) for value in tqdm(tried, desc=f"{name}: setting")]
    ranked = [-math.inf if score is None else score for score in scores]
    return tried[ranked.index(max(ranked))]


def _score(method: Method, name: str, on: Task, cell: Cell, setting: float) -> float | None:
    """Train and return the log-likelihood, or None if the training broke down."""
    config = of_size(SCALES[SCALE], cell[0], name, cell[1], SCALE, setting)
    record = trained(method, config, on, Job(torch.device("cpu"), None))
    return record["metrics"].get("log_likelihood")


def _checked(methods: Mapping[str, Posterior | Method]) -> dict[str, Method]:
    """Check names and convert posteriors to methods."""
    if not methods:
        raise ValueError('compare needs a method, such as {"mine": gilib.Factorised()}, got none')
    rows = {plots.METHODS[name].label for name in {*METHODS, *ORDER} & {*plots.METHODS}}
    if taken := sorted({*methods} & {*METHODS, *ORDER, *rows}):
        raise ValueError(f"{', '.join(taken)}: a method of the comparison is called so, choose another name")
    new = {}
    for name, method in methods.items():
        if not isinstance(method, Posterior | Method):
            kind = f"the class {method.__name__}" if isinstance(method, type) else type(method).__name__
            raise TypeError(f"{name} must be a posterior or a Method, an instance, got {kind}")
        new[name] = method if isinstance(method, Method) else _as_method(method)
    return new


def _as_method(posterior: Posterior) -> Method:
    return Method(perceptron(lambda config: posterior), adam)


def _recorded() -> dict[Cell, dict[str, float | None]]:
    """Return the recorded log-likelihoods of all splits for which every method is recorded."""
    found: dict[Cell, dict[str, float | None]] = {}
    for run in load_records("posteriors"):
        config = run["config"]
        if run["scale"] == SCALE and config["method"] in METHODS:
            own = found.setdefault((config["dataset"], config["split"]), {})
            own[config["method"]] = run["metrics"].get("log_likelihood")
    return {cell: own for cell, own in found.items() if set(own) == set(METHODS)}
