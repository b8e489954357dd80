"""Where a record comes from is plain data."""

import json

from experiments.runner.provenance import provenance


def test_provenance_is_plain_data():
    found = json.loads(json.dumps(provenance()))
    assert {"gilib", "torch", "python", "device", "hardware", "threads", "revision"} == set(found)
    assert found["device"] == "cpu"
