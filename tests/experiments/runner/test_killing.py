"""Runners that are killed at random moments lose no record, write none twice or in half, and end alike."""

import pytest

from experiments.runner.records import read_records
from tests.experiments.runner.killing import kill_at_random
from tests.support import forked

KILLS = 6


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(tmp_path):
    assert forked.run(kill_at_random, tmp_path, KILLS) == 0
    rounds = len(list(tmp_path.glob("round*")))

    whole = measured(tmp_path / "whole" / "tiny.jsonl")
    assert len(whole) == 6
    resumed = 0
    for number in range(rounds):
        path = tmp_path / f"round{number}" / "tiny.jsonl"
        assert measured(path) == whole, "the same numbers to the last bit"
        resumed += sum(record["data"]["resumed_at"] > 0 for record in read_records(path))
        assert {file.name for file in path.parent.iterdir()} == {path.name, f".{path.name}.lock"}
    assert resumed > 0, "a kill hit a training that had a checkpoint"

    for groups, moment in enumerate(("write", "fsync", "replace"), 1):
        appended = read_records(tmp_path / "appended" / f"after-{moment}.jsonl")
        assert [record["config"]["group"] for record in appended] == [
            g for g in range(groups) for _ in range(10)
        ]


def measured(path):
    """What every record of a file measured; reading it finds lines in half and identities twice."""
    return {str(record["config"]): (record["metrics"], record["curve"]) for record in read_records(path)}
