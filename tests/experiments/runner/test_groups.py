"""Filters say what they do not find; groups survive interruptions."""

import dataclasses
import itertools

import pytest

from experiments.runner.groups import make_groups, matches, select_configs
from tests.experiments.tiny import TINY
from tests.support import refusals


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
    ]
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
