"""The study of defaults: one setting at a time, choices by the bound alone, one smoke run."""

import dataclasses
import math

import torch

import gilib
from experiments import load_records
from experiments.comparisons import defaults, defaults_run, tasks
from experiments.comparisons.defaults import BASE, STUDIED, VARIANTS, DefaultsConfig
from experiments.runner.running import run_experiment
from tests.experiments.recorded import JOB


def record(variant, dataset, split, elbo, **rest):
    config = {"variant": variant, "dataset": dataset, "split": split}
    return {"config": config, "metrics": {"elbo": elbo, "log_likelihood": -elbo}, **rest}


def test_a_variant_differs_from_its_base_in_one_setting_but_for_what_is_recommended_now():
    assert VARIANTS[BASE].recipe() == STUDIED
    for name, variant in VARIANTS.items():
        own, base = variant.recipe(), VARIANTS[variant.base].recipe()
        other = [f.name for f in dataclasses.fields(own) if getattr(own, f.name) != getattr(base, f.name)]
        changed = {BASE: 0, "gelu_draws_10": 2, defaults.CHOSEN: 2}.get(name, 1)
        assert len(other) + (type(own) is not type(base)) == changed, name
    assert VARIANTS["gi"].recipe(7).steps == 7
    assert VARIANTS[defaults.CHOSEN].recipe() == gilib.recommended("network")


def test_the_largest_bound_chooses_and_test_data_do_not():
    """The test log-likelihoods of these records are in the opposite order."""
    records = [
        record(variant, dataset, 0, bound)
        for variant, bounds in {BASE: (1.0, 1.0), "gi": (1.5, 0.0), "constant": (1.2, 0.9)}.items()
        for dataset, bound in zip(("yacht", "wine"), bounds, strict=True)
    ]
    assert defaults.choose(defaults.scores(records)).setting == "constant"  # loses 0.3 and 0.1


def test_what_lacks_a_set_is_left_out_and_what_diverged_loses_everything():
    records = [record(BASE, "yacht", 0, 1.0), record(BASE, "wine", 0, 1.0), record("gi", "yacht", 0, 9.0)]
    records += [record("constant", "yacht", 0, 9.0), record("constant", "wine", 0, 9.0, diverged_at=3)]
    scores = defaults.scores(records)
    assert set(scores) == {BASE, "constant"} and scores["constant"]["wine"] == [None]
    assert defaults.choose(scores).setting == BASE
    assert defaults.scores(records[2:]) == {}


def test_centres_start_with_the_targets_of_the_nearest_rows():
    x = torch.tensor([[0.0], [0.1], [5.0], [5.2]])
    recipe = dataclasses.replace(VARIANTS["centres"].recipe(), num_inducing=4)
    net, _ = recipe.build(x, 10.0 * x)
    (start,) = (p for name, p in net.named_parameters() if "inducing" in name and p.shape[-2:] == (4, 1))
    assert torch.equal(start.flatten().sort().values, x.flatten())


def test_moons_are_half_circles_about_their_centres():
    x, y = tasks.moons(400, 0.0, torch.Generator().manual_seed(1))
    upper, lower = x[y == 0], x[y == 1] - torch.tensor([1.0, 0.5]).double()
    for part in (upper, lower):
        torch.testing.assert_close(part.norm(dim=-1), torch.ones(200).double(), rtol=1e-12, atol=0)
    assert (upper[:, 1] >= 0).all() and (lower[:, 1] <= 0).all()
    noisy, _ = tasks.moons(400, 0.3, torch.Generator().manual_seed(1))
    assert abs(float((noisy - x).std()) / 0.3 - 1) < 6 / math.sqrt(2 * 800)


def test_the_study_runs_on_regression_and_classes():
    assert run_experiment("defaults", "smoke").added == 6
    for own in load_records("defaults"):
        metrics = own["metrics"]
        assert all(math.isfinite(value) for value in metrics.values())
        assert ("rmse" in metrics) != ("ece" in metrics)
        assert 0 <= metrics.get("error", 0) <= 1
    assert set(defaults.chosen("smoke").losses) == {"yacht", tasks.MOONS}


def test_what_breaks_down_is_recorded_as_diverged(monkeypatch):
    wild = defaults.Variant("learning rate", "1e12", {"lr": 1e12})
    monkeypatch.setitem(VARIANTS, "wild", wild)
    config = DefaultsConfig("yacht", "wild", 0, steps=30, test_samples=5)
    found = defaults_run.run(config, JOB)
    assert found["metrics"] == {} and found["diverged_at"] == 30 and found["why"]
