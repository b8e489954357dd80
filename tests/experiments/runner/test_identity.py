"""What a configuration is: its identity, which outlives new fields and names, its filters and its group."""

import dataclasses
import itertools
from dataclasses import dataclass

import pytest

from experiments import load_records, select
from experiments.ober2021.toy import ToyConfig
from experiments.registry import EXPERIMENTS
from experiments.runner.experiment import Experiment
from experiments.runner.groups import make_groups, matches, select_configs
from experiments.runner.identity import identity, record_identity, with_defaults
from experiments.runner.records import read_records, results_file
from experiments.runner.running import RunSummary, pending, run_experiment
from experiments.runner.writing import append
from tests.experiments import tiny
from tests.experiments.tiny import TINY
from tests.support import refusals


@dataclass(frozen=True)
class Optimiser:
    name: str = "Adam"
    betas: tuple[float, float] = (0.9, 0.999)


@dataclass(frozen=True)
class SmallConfig:
    """`TinyConfig` under another name, with new fields."""

    task: str
    seed: int
    estimator: str = "draw"
    lr: float = 0.01
    optimiser: Optimiser = Optimiser()
    second: Optimiser | None = None
    rates: tuple[float, ...] = (1.0, 0.5)
    scale: str = "smoke"


def small(scale):
    return (SmallConfig(c.task, c.seed, scale=c.scale) for c in tiny.configurations(scale))


SMALL = Experiment("the same, renamed", SmallConfig, small, tiny.run, tiny.task)


def test_every_setting_that_is_not_at_its_default_counts():
    base, names = ToyConfig(), [field.name for field in dataclasses.fields(ToyConfig)]
    found = {identity("toy", base), *(identity("toy", dataclasses.replace(base, **{n: "x"})) for n in names)}
    assert len(found) == 1 + len(names)
    assert identity("toy", base) != identity("toy_inducing", base)


def test_a_new_field_and_a_new_name_find_every_record_again(monkeypatch):
    run_experiment("tiny", "smoke")
    monkeypatch.setitem(EXPERIMENTS, "tiny", SMALL)
    assert pending("tiny", "smoke") == ([], 6)
    assert run_experiment("tiny", "smoke") == RunSummary(0, 0, 0)
    assert len(select("tiny", estimator="draw", rates=[1.0, 0.5])) == 6
    assert select("tiny", optimiser={"name": "Adam", "betas": [0.9, 0.999]}) == load_records("tiny")
    assert select("tiny", estimator="pointwise") == []
    assert append("tiny", load_records("tiny"), SmallConfig) == []


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_new_field_and_a_new_name_find_all_that_is_committed(name, kept):
    kind, records = EXPERIMENTS[name].config, read_records(results_file(name))
    new = [("sampler", str, "draw"), ("optimiser", Optimiser, dataclasses.field(default=Optimiser()))]
    other = dataclasses.make_dataclass("Renamed", new, bases=(kind,), frozen=True)
    for record in records:
        config = {key: tuple(v) if isinstance(v, list) else v for key, v in record["config"].items()}
        settings = config | {"scale": record["scale"]}
        found = {identity(name, kind(**settings)), identity(name, other(**settings))}
        assert found == {record_identity(record, kind)} == {record_identity(record, other)}
        assert identity(name, other(**settings, sampler="pointwise")) not in found


@pytest.mark.parametrize(
    ("change", "is_new"),
    [
        (dict(optimiser=Optimiser("SGD")), True),
        (dict(optimiser=Optimiser(betas=(0.9, 0.9))), True),
        (dict(second=Optimiser()), True),
        (dict(rates=()), True),
        (dict(optimiser=Optimiser(), second=None, rates=(1.0, 0.5)), False),
    ],
)
def test_settings_within_settings(change, is_new):
    base = SmallConfig("sine", 0)
    assert (identity("tiny", dataclasses.replace(base, **change)) != identity("tiny", base)) == is_new


def test_a_new_field_within_a_field_changes_nothing():
    @dataclass(frozen=True)
    class Longer(Optimiser):
        weight_decay: float = 0.0

    old = dataclasses.make_dataclass("Old", [("first", Optimiser), ("then", Optimiser | None)], frozen=True)
    new = dataclasses.make_dataclass("New", [("first", Longer), ("then", Longer | None)], frozen=True)
    before = identity("tiny", old(Optimiser("SGD"), Optimiser()))
    assert identity("tiny", new(Longer("SGD"), Longer())) == before
    assert identity("tiny", new(Longer("SGD", weight_decay=0.1), Longer())) != before
    record = {"first": {"name": "SGD"}, "then": None}
    assert with_defaults(new, record)["first"] == {"name": "SGD", "betas": [0.9, 0.999], "weight_decay": 0.0}


def test_filters_of_one_field_are_alternatives_and_fields_combine():
    assert len(select_configs(TINY, "smoke")) == 6
    found = select_configs(TINY, "smoke", ["task=sine", "task=line", "seed=1"])
    assert [(config.task, config.seed) for config in found] == [("sine", 1), ("line", 1)]
    assert len(select_configs(TINY, "smoke", ["lr=1e-2", "task=cube"])) == 2


test_what_finds_nothing_says_what_there_is = refusals(
    [
        (lambda: select_configs(TINY, "smoke", ["dataset=boston"]), "unknown field .* are task"),
        (lambda: select_configs(TINY, "smoke", ["seed"]), "form field=value, got 'seed'"),
        (lambda: select_configs(TINY, "smoke", ["seed=7"]), "'smoke' has seed=7. There are seed: 0, 1"),
        (lambda: select_configs(TINY, "smoke", ["seed=True"]), "no configuration"),
        (lambda: select_configs(TINY, "long"), "unknown scale 'long': choose one of 'smoke', "),
        (lambda: dataclasses.replace(TINY, config=Optimiser), "Optimiser must be a frozen dataclass with a"),
    ],
    (TypeError, ValueError),
)


def test_a_configuration_that_a_grid_holds_twice_counts_once():
    twice = dataclasses.replace(TINY, configurations=lambda scale: 2 * [*TINY.configurations(scale)])
    assert select_configs(twice, "smoke") == select_configs(TINY, "smoke")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10, None])
def test_what_is_left_of_the_groups_are_the_same_groups(size):
    grid = dataclasses.replace(TINY, group=lambda number: number % 2, largest_group=size)
    groups = make_groups(grid, range(13))
    assert sorted(number for group in groups for number in group) == list(range(13))
    assert max(map(len, groups)) <= (size or 7)
    for recorded in itertools.product([False, True], repeat=min(len(groups), 6)):
        left = [group for group, done in itertools.zip_longest(groups, recorded) if not done]
        assert set(make_groups(grid, sorted(number for group in left for number in group))) == set(left)


def test_without_a_key_everything_runs_alone_and_a_truth_value_is_no_number():
    assert make_groups(dataclasses.replace(TINY, group=None), "abc") == [("a",), ("b",), ("c",)]
    assert not matches(1, "true") and not matches(True, "1") and not matches(0, "false")
