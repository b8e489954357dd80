"""Ask for the next rows of a table: those over which draws of a Gaussian process disagree, or any.

A quarter of the rows tests. A model that knows twenty of the others asks for ten more at a time, until it
knows a hundred.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.common.measuring import significant
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.data import load_uci, sha256_of

TEST_SHARE, DRAWS = 0.25, 100
SETS, CHOICES, SEEDS = ("yacht", "energy", "concrete"), ("disputed", "random"), 5


@dataclass(frozen=True)
class AskingConfig:
    """One table that is filled row by row.

    Attributes:
        dataset: yacht, energy or concrete.
        choice: how rows are chosen, "disputed" or "random".
        seed: seed of the test rows, of the first rows and of all draws.
        first: number of rows that the first model knows.
        at_once: number of rows that each model asks for.
        last: number of rows that the last model knows.
        scale: "smoke" or "paper".
    """

    dataset: str
    choice: str
    seed: int
    first: int = 20
    at_once: int = 10
    last: int = 100
    scale: str = "paper"


def grid(scale: str) -> Iterator[AskingConfig]:
    """Yield both choices on all sets, seed by seed."""
    if scale == "smoke":
        yield from (AskingConfig("yacht", choice, 0, 10, 5, 15, scale) for choice in CHOICES)
        return
    for seed, dataset, choice in itertools.product(range(SEEDS), SETS, CHOICES):
        yield AskingConfig(dataset, choice, seed)


def disputed(functions: NDArray[np.float64], noise_sd: float, number: int) -> list[int]:
    """Return the rows over which drawn functions disagree most, one after another.

    Each row lowers the covariance of the others by what measuring it would tell.

    Args:
        functions: values of S functions at N rows, `[N, S]`.
        noise_sd: standard deviation of a measurement, in the units of the functions.
        number: how many rows to return.

    >>> disputed(np.array([[1.0, -1.0], [2.0, -2.0], [0.5, 0.5]]), 0.1, 2)
    [1, 0]
    """
    covariance, found = np.cov(functions, bias=True), list[int]()
    for _ in range(number):
        variance = covariance.diagonal().copy()
        variance[found] = -1.0  # asked already
        found.append(int(variance.argmax()))
        column = covariance[:, found[-1]]
        covariance = covariance - np.outer(column, column) / (column[found[-1]] + noise_sd**2)
    return found


def run(config: AskingConfig, job: Job) -> Record:
    """Fill the table, and measure each model on the test rows.

    Returns:
        A record: `curve`, the RMSE of each model in the units of the data; the last model's `rmse`, and its
        `log_likelihood` in nats per row; seconds of this process.
    """
    from gilib.sklearn import BayesianRegressor

    begin, table, source = time.process_time(), load_uci(config.dataset), np.random.default_rng(config.seed)
    x, y = table.x.numpy(), table.y[:, 0].numpy()
    order = source.permutation(len(x))
    test, rest = np.split(order, [round(TEST_SHARE * len(x))])
    known, rest = np.split(rest, [config.first])
    curve = []
    while True:
        model = BayesianRegressor("gp", random_state=config.seed).fit(x[known], y[known])
        curve.append(float(np.sqrt(np.square(model.predict(x[test]) - y[test]).mean())))
        if len(known) >= config.last:
            break
        if config.choice == "disputed":
            functions = model.sample_functions(x[rest], DRAWS).reshape(len(rest), DRAWS)
            asked = disputed(functions, float(model.noise_sd_[0]), config.at_once)
        else:
            asked = source.choice(len(rest), config.at_once, replace=False).tolist()
        known, rest = np.append(known, rest[asked]), np.delete(rest, asked)
    density = float(np.mean(model.log_prob(x[test], y[test])))
    metrics = {"rmse": curve[-1], "log_likelihood": density, "process_seconds": time.process_time() - begin}
    return {
        "data": {"name": table.name, "sha256": sha256_of(table.x, table.y)},
        "metrics": {name: significant(value) for name, value in metrics.items()},
        "curve": [significant(value) for value in curve],
    }


EXPERIMENTS = {
    "asking": Experiment(
        "Ask for the next rows: where draws disagree, or at random",
        AskingConfig,
        grid,
        one_by_one(run),
        scales=("smoke", "paper"),
    )
}
