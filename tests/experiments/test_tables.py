"""Numbers on pages: means, errors, captions."""

import math

import pytest

from experiments import tables


def test_mean_and_standard_error():
    values = [1.0, 2.0, 4.0, 5.0]
    mean, error = tables.mean_and_error(values)
    assert mean == 3.0
    assert error == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 3 / 4))
    assert tables.mean_and_error([2.5]) == (2.5, 0.0)


def test_no_values_are_an_error_that_says_why():
    with pytest.raises(ValueError, match="at least one value, got none"):
        tables.mean_and_error([])


def test_a_caption_names_file_scale_and_seeds():
    records = [{"experiment": "toy", "scale": "paper", "config": {"seed": seed}} for seed in (0, 0, 1)]
    text = tables.caption("Bounds.", records, records[:1])
    assert "results/toy.jsonl, scale “paper”, 2 seeds; results/toy.jsonl" in text
    assert "1 seed." in text
    assert text._repr_markdown_() == str(text)


def test_a_caption_is_its_text_and_the_provenance_of_its_records():
    records = [{"experiment": "toy", "scale": "paper", "config": {"seed": 0}}]
    assert tables.provenance(records) == "results/toy.jsonl, scale “paper”, 1 seed"
    assert tables.caption("Bounds.", records) == f"*Bounds. Records: {tables.provenance(records)}.*"


def test_a_caption_counts_splits_where_there_are_some():
    records = [{"experiment": "uci", "scale": "reduced", "config": {"split": split}} for split in (0, 1, 1)]
    assert "2 splits." in tables.caption("Bounds.", records)


def test_a_caption_counts_repetitions_or_records_where_there_are_no_seeds():
    records = [{"scale": "reduced", "experiment": "x", "config": {"repetition": k % 2}} for k in range(4)]
    assert "2 repetitions." in tables.caption("Bounds.", records)
    assert "4 records." in tables.caption("Times.", [record | {"config": {}} for record in records])


def test_captions_name_the_data_sets_of_each_scale():
    runs = [("long", "yacht", split) for split in range(5)]
    runs += [("reduced", "boston", 0), ("reduced", "wine", 0)]
    records = [
        {"experiment": "uci", "scale": scale, "config": {"dataset": name, "split": split}}
        for scale, name, split in runs
    ]
    origin = "uci.jsonl, scale “long” (yacht), 5 splits, scale “reduced” (boston, wine), 1 split."
    assert origin in tables.caption("", records)
