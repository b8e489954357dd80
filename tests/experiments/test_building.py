"""A recorded training is had before its first step, ends at the record, and is changed in one argument."""

from contextlib import nullcontext

import pytest
import torch

import gilib
from experiments import build, load_records
from experiments.runner.running import run_experiment

TOY = "toy", dict(method="gi", normalise=True, seed=0), dict(prior=gilib.StandardPrior())
DEEP = "dgp_uci", dict(dataset="yacht", method="gi", depth=2, split=1)


@pytest.mark.parametrize(
    ("name", "settings", "changed"), [TOY, (*DEEP, dict(kernel=gilib.kernels.Matern(smoothness=1.5)))]
)
def test_a_training_that_is_built_ends_at_its_record(name, settings, changed):
    run_experiment(name, "smoke", only=[f"{key}={value}" for key, value in settings.items()])
    (record,) = load_records(name)
    own = build(name, **settings)
    assert own.record == record
    net, likelihood = own.start()
    before = [parameter.clone() for parameter in net.parameters()]
    again = [parameter.clone() for parameter in own.start()[0].parameters()]
    assert all(map(torch.equal, before, again)), "the same start at every call"
    gilib.fit(net, likelihood, own.x, own.y, **own.settings)
    measured = own.measure(net, likelihood)
    assert float(measured["elbo"]) == pytest.approx(record["metrics"]["elbo"], rel=1e-5)
    begun, other = (own.measure(*own.start(**given)) for given in ({}, changed))
    assert float(other["elbo"]) != pytest.approx(float(begun["elbo"]), rel=1e-3)


@pytest.mark.parametrize("method", ["ensemble", "star", "sghmc", "bali"])
def test_every_kind_of_posterior_is_built_from_its_record(method, kept):
    own = build("posteriors", dataset="yacht", method=method, split=0)
    net, likelihood = own.start()
    gilib.fit(net, likelihood, own.x, own.y, **own.settings | {"steps": 2, "callbacks": []})
    assert own.record["config"]["method"] == method and own.settings["steps"] == own.record["config"]["steps"]
    refused = pytest.raises(TypeError, match="prior") if method == "star" else nullcontext()
    with refused:
        assert own.start(prior=gilib.StandardPrior())[0] is not net


def test_the_prior_of_a_table_is_changed(kept):
    own = build("uci", dataset="yacht", method="gi", prior="NealPrior", split=0)
    net, _ = own.start(prior=gilib.StandardPrior())
    assert own.x.shape[0] == 1 and own.test_x.shape[:2] == own.test_y.shape[:2]
    assert isinstance(net, gilib.Network)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nothing", {}, "unknown experiment"),
        ("toy_hmc", {}, "those that can be had are toy, .*dgp_uci"),
        ("dgp_uci", dict(set="yacht"), "unknown field of dgp_uci: 'set'"),
        ("dgp_uci", dict(dataset="yach"), "no records have these settings.*dataset: .*yacht"),
        ("dgp_uci", dict(dataset="yacht", method="gi", depth=2), "records have these.*differ in split: 0, 1"),
        ("posteriors", dict(dataset="yacht", method="hmc", split=0), "hmc runs chains"),
    ],
)
def test_what_cannot_be_built_is_explained(name, settings, message, kept):
    with pytest.raises(ValueError, match=message):
        build(name, **settings)
