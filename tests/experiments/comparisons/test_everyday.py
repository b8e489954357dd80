"""Tables that chose nothing: splits, the packages that they come with, one smoke run."""

import math
import sys

import pytest
import torch

from experiments import load_records
from experiments.comparisons import everyday
from experiments.runner.running import run_experiment

pytest.importorskip("sklearn")


def test_a_quarter_of_the_rows_tests():
    own, other = everyday.task("diabetes", 0), everyday.task("diabetes", 1)
    assert (len(own.x), len(own.test_x), own.classes) == (332, 110, None)
    torch.testing.assert_close(own.x.mean(0), torch.zeros(10), atol=1e-5, rtol=0.0)
    assert own.data == other.data and not torch.equal(own.y, other.y)
    assert everyday.task("wine", 0).classes == 3


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "vega_datasets", None)
    with pytest.raises(ImportError, match="pip install vega_datasets statsmodels"):
        everyday.task("cars", 0)


def test_words_become_columns_and_gaps_are_left_out():
    import pandas as pd

    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": [1.0, 2.0, None], "y": [3.0, 4.0, 5.0]})
    x, y = everyday._of_frame(frame, "y")
    assert x.tolist() == [[1.0, 0.0], [2.0, 1.0]] and y.tolist() == [3.0, 4.0]


def test_the_default_runs_beside_others():
    assert run_experiment("everyday", "smoke").added == 4
    for record in load_records("everyday"):
        assert all(math.isfinite(value) for value in record["metrics"].values())
        assert ("elbo" in record["metrics"]) == (record["config"]["method"] == "default")
