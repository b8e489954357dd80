"""Integrated or sampled inducing outputs: the grid, and that both train on the same bound."""

import dataclasses

import pytest
import torch

from experiments.lindinger2020 import convergence, networks, tasks
from experiments.lindinger2020.convergence import ConvergenceConfig
from gilib.structured import FullyCoupled, StructuredGP
from tests.experiments.recorded import JOB


def test_pairs_differ_in_the_estimator_and_at_paper_scale_in_steps():
    known = {"reduced": {(True, 150), (False, 150)}, "paper": {(True, 750), (False, 1500)}}
    for scale, steps in known.items():
        grid = list(convergence.grid(scale))
        assert len(grid) == 6 and {(c.marginalise, c.steps) for c in grid} == steps
        same = {dataclasses.replace(c, marginalise=True, steps=1) for c in grid}
        assert len(same) == 3 == len({c.seed for c in same})


@pytest.mark.parametrize("marginalise", [True, False])
def test_all_points_at_every_step_and_the_curve_is_theirs(marginalise, monkeypatch):
    seen = {}
    fit = convergence.uci_run.gilib.fit

    def watched(net, likelihood, x, y, **settings):
        seen.update(settings, points=len(x), net=net)
        seen["history"] = fit(net, likelihood, x, y, **settings)
        return seen["history"]

    monkeypatch.setattr(convergence.uci_run.gilib, "fit", watched)
    config = ConvergenceConfig(marginalise, 0, num_inducing=6, steps=5)
    record = convergence.run(config, JOB)
    assert seen["batch_size"] == seen["points"] == 927 and not seen["callbacks"]
    (layer,) = (module for module in seen["net"].modules() if isinstance(module, StructuredGP))
    assert layer.marginalise == marginalise and layer.family == FullyCoupled()
    assert record["curve"] == pytest.approx(seen["history"].elbo.tolist(), rel=1e-5)
    assert record["metrics"]["curve_every"] == 1 and record["metrics"]["estimate_sd"] > 0
    assert seen["rule"].schedule(4, 5) == 1.0


def test_both_start_at_the_same_network():
    task = tasks.load("concrete", "interpolation", 0, 0.0)
    one = convergence._training(ConvergenceConfig(True, 0, num_inducing=6), len(task.x))
    first, second = (networks.structured(one, task, marginalise)[0] for marginalise in (True, False))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
