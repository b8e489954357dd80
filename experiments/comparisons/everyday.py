"""The estimators as they come, on tables of other packages that chose nothing, beside what users would take.

Three quarters of the rows train, normalised; the others test. Tables of vega_datasets and statsmodels, which
are no dependencies of this package, want `pip install vega_datasets statsmodels`, NGBoost wants
`pip install --no-deps ngboost`; scikit-learn brings the others.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import torch

from experiments.common.measuring import significant
from experiments.comparisons.rivals import METHODS as RIVALS
from experiments.comparisons.rivals import Found, Method, linear_regression, prepare, recommended
from experiments.comparisons.tasks import Task, measured
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.data import Normalisation, sha256_of
from gilib.optional import require

TEST_SHARE = 0.25
POINTS, SPREAD = 200, {"friedman1": 1.0, "friedman2": 100.0, "friedman3": 0.1}  # of the noise


@dataclass(frozen=True)
class EverydayConfig:
    """One method on one split.

    Attributes:
        dataset: key of `REGRESSION` or `CLASSES`.
        method: key of `METHODS`.
        split: seed of the split and of all that is random.
        steps: of trainings by gradients; 0: the method's.
        scale: smoke or paper.
    """

    dataset: str
    method: str
    split: int
    steps: int = 0
    scale: str = "paper"


def _shipped(name: str) -> tuple[Any, Any]:
    return getattr(require("sklearn.datasets", "sklearn"), f"load_{name}")(return_X_y=True)


def _friedman(name: str) -> tuple[Any, Any]:
    make = getattr(require("sklearn.datasets", "sklearn"), f"make_{name}")
    return make(POINTS, noise=SPREAD[name], random_state=0)


def _other(package: str, name: str) -> Any:
    """A table of a package that no extra of gilib installs."""
    try:
        module = import_module(package)
    except ImportError as error:
        raise ImportError(
            f"{package} is no dependency of gilib and cannot be imported ({error}): "
            "pip install vega_datasets statsmodels, or name other sets, --only dataset=diabetes dataset=iris"
        ) from error
    return module.data(name) if package == "vega_datasets" else getattr(module, name).load_pandas().data


def _of_frame(frame: Any, target: str) -> tuple[Any, Any]:
    """Complete rows, words as columns of zeros and ones."""
    pandas = require("pandas", "sklearn")
    frame = frame.dropna()
    x = pandas.get_dummies(frame.drop(columns=target), drop_first=True, dtype=float)
    return x.to_numpy(float), frame[target].to_numpy(float)


def _cars() -> tuple[Any, Any]:
    frame = _other("vega_datasets", "cars")
    return _of_frame(frame.drop(columns="Name").assign(Year=frame["Year"].dt.year), "Miles_per_Gallon")


def _weather() -> tuple[Any, Any]:
    frame = _other("vega_datasets", "seattle-weather")
    return _of_frame(frame.assign(date=frame["date"].dt.dayofyear), "temp_max")


def _schools() -> tuple[Any, Any]:
    frame = _other("statsmodels.datasets", "star98")
    share = frame["NABOVE"] / (frame["NABOVE"] + frame["NBELOW"])
    return _of_frame(frame.drop(columns=["NABOVE", "NBELOW"]).assign(share=share), "share")


REGRESSION: dict[str, Callable[[], tuple[Any, Any]]] = {
    "diabetes": lambda: _shipped("diabetes"),
    "friedman1": lambda: _friedman("friedman1"),
    "friedman2": lambda: _friedman("friedman2"),
    "friedman3": lambda: _friedman("friedman3"),
    "cars": _cars,
    "barley": lambda: _of_frame(_other("vega_datasets", "barley").astype({"year": str}), "yield"),
    "engel": lambda: _of_frame(_other("statsmodels.datasets", "engel"), "foodexp"),
    "schools": _schools,
    "weather": _weather,
}
CLASSES = ("iris", "wine", "breast_cancer", "digits")
METHODS: dict[str, Method] = {
    "default": recommended(None),
    "linear": linear_regression,
    **{name: RIVALS[name] for name in ("logistic", "exact_gp", "forest", "boosting", "ngboost")},
}
FOR_CLASSES, FOR_REGRESSION = ("logistic",), ("linear", "exact_gp")
SPLITS = 3


def grid(scale: str) -> Iterator[EverydayConfig]:
    """Split by split and set by set."""
    if scale == "smoke":
        yield from (EverydayConfig("diabetes", method, 0, 2, scale) for method in ("default", "linear"))
        yield from (EverydayConfig("iris", method, 0, 2, scale) for method in ("default", "logistic"))
        return
    for split, dataset, method in itertools.product(range(SPLITS), (*REGRESSION, *CLASSES), METHODS):
        if method not in (FOR_REGRESSION if dataset in CLASSES else FOR_CLASSES):
            yield EverydayConfig(dataset, method, split)


@functools.lru_cache(1)
def _table(name: str) -> tuple[Any, Any]:
    return _shipped(name) if name in CLASSES else REGRESSION[name]()


def task(name: str, split: int) -> Task:
    """A split of a set, normalised; columns that are the same in all rows are zeros."""
    x, y = (torch.from_numpy(np.array(part)) for part in _table(name))
    x, y = x.double(), y.long() if name in CLASSES else y.double()[:, None]
    about = {"name": name, "sha256": sha256_of(x, y.double().reshape(len(y), -1))}
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(split))
    test, train = order[: round(TEST_SHARE * len(x))], order[round(TEST_SHARE * len(x)) :]
    one = torch.ones((), dtype=torch.float64)
    if name in CLASSES:
        scales = Normalisation.fit(x[train])
        own = scales.x(x).float()
        return Task(about, own[train], y[train], own[test], y[test], int(y.max()) + 1, one)
    scales = Normalisation.fit(x[train], y[train])
    own, targets = scales.x(x).float(), scales.y(y).float()
    return Task(about, own[train], targets[train], own[test], targets[test], None, scales.y_std[0])


def run(config: EverydayConfig, job: Job) -> Record:
    """Fit, predict and measure.

    Returns:
        A record: what `tasks.measured` gives of the test data; rows and columns of training; of ours `elbo`;
        seconds of this process for fit and prediction.
    """
    own = task(config.dataset, config.split)
    prepare(config.method)
    begin = time.process_time()
    found: Found = METHODS[config.method](own, config.split, config.steps)
    metrics = {"process_seconds": time.process_time() - begin}
    metrics |= {"rows": len(own.x), "columns": own.x.shape[1]} | measured(found.prediction, own) | found.more
    assert all(math.isfinite(value) for value in metrics.values())
    shown = {name: significant(value) for name, value in metrics.items()}
    return {"data": own.data, "metrics": shown, "curve": []}


EXPERIMENTS = {
    "everyday": Experiment(
        "The default beside others on tables that chose nothing",
        EverydayConfig,
        grid,
        one_by_one(run),
        scales=("smoke", "paper"),
    )
}
