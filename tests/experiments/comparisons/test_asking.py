"""Rows that are asked for: the pivots of the draws' covariance, and what a run records."""

from functools import partial

import numpy as np

import gilib.sklearn
from experiments import load_records
from experiments.comparisons.asking import disputed
from experiments.runner.running import run_experiment


def test_rows_are_those_with_the_largest_variance_given_the_rows_before():
    """Against the conditional covariance in closed form, with the draws' own covariance for a prior."""
    functions = np.random.default_rng(0).normal(size=(12, 3)) @ np.random.default_rng(1).normal(size=(3, 50))
    covariance, noise, found = np.cov(functions, bias=True), 0.3, []
    for _ in range(5):
        prior = covariance[np.ix_(found, found)] + noise**2 * np.eye(len(found))
        cross = covariance[:, found]
        left = covariance.diagonal() - np.einsum("ni,ij,nj->n", cross, np.linalg.inv(prior), cross)
        left[found] = -1.0
        found.append(int(left.argmax()))
    assert disputed(functions, noise, 5) == found


def test_both_choices_begin_with_the_same_model(monkeypatch):
    quick = partial(gilib.sklearn.BayesianRegressor, steps=5)
    monkeypatch.setattr(gilib.sklearn, "BayesianRegressor", quick)
    assert run_experiment("asking", "smoke").added == 2
    one, other = (record["curve"] for record in load_records("asking"))
    assert len(one) == len(other) == 2 and one[0] == other[0] and one[1] != other[1]
