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
    with pytest.raises(ValueError, match="at least one value, got none"):
        tables.mean_and_error([])


def record(experiment, scale="reduced", **config):
    return {"experiment": experiment, "scale": scale, "config": config}


UCI = [record("uci", "long", dataset="yacht", split=k) for k in range(5)]
UCI += [record("uci", dataset=name, split=0) for name in ("boston", "wine")]
PROVENANCE = {
    "toy.jsonl, scale “paper”, 1 seed": [[record("toy", "paper", seed=0)]],
    "uci.jsonl, scale “reduced”, 2 splits": [[record("uci", split=k) for k in (0, 1, 1)]],
    "x.jsonl, scale “reduced”, 2 repetitions": [[record("x", repetition=k % 2) for k in range(4)]],
    "x.jsonl, scale “reduced”, 4 records": [[record("x")] * 4],
    "a.jsonl, scale “reduced”, 1 seed; results/b.jsonl, scale “reduced”, 1 seed": [
        [record("a", seed=0)],
        [record("b", seed=1)],
    ],
    "uci.jsonl, scale “long” (yacht), 5 splits, scale “reduced” (boston, wine), 1 split": [UCI],
}


@pytest.mark.parametrize(("origin", "groups"), PROVENANCE.items())
def test_a_caption_is_its_text_and_the_provenance_of_its_records(origin, groups):
    assert tables.provenance(*groups) == f"results/{origin}"
    text = tables.caption("Bounds.", *groups)
    assert text._repr_markdown_() == str(text) == f"*Bounds. Records: results/{origin}.*"
