"""Numbers on pages: means, errors, captions."""

import math

import pytest

from gilib import tables


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
    assert "results/toy.jsonl`, scale “paper”, 2 seeds; `results/toy.jsonl`" in text
    assert "1 seed." in text
    assert text._repr_markdown_() == str(text)


def test_a_caption_counts_splits_where_there_are_some():
    records = [{"experiment": "uci", "scale": "reduced", "config": {"split": split}} for split in (0, 1, 1)]
    assert "2 splits." in tables.caption("Bounds.", records)
