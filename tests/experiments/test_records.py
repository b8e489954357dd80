"""Records are appended whole, read with their line numbers, and never dropped in silence."""

import dataclasses
import json

import pytest

from gilib.experiments import RecordError, best_scale, load_records, printed, select
from gilib.experiments.records import append, identity, provenance
from gilib.experiments.toy import ToyConfig


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path))
    return tmp_path


def test_appended_records_come_back_in_order():
    append("trial", {"id": "a", "value": 1.5})
    append("trial", {"id": "b", "value": [1, 2]})
    assert [record["id"] for record in load_records("trial")] == ["a", "b"]


def test_a_record_with_nan_is_refused_and_leaves_the_file_alone(results):
    append("trial", {"id": "a"})
    before = (results / "trial.jsonl").read_bytes()
    with pytest.raises(ValueError, match="Out of range float"):
        append("trial", {"id": "b", "value": float("nan")})
    assert (results / "trial.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"schema": 1, "id"', r"line 2: not a record"),
        ('"text"', r"line 2: not a record of gilib"),
        ('{"id": "x"}', r"line 2: not a record of gilib"),
        ('{"schema": 99, "id": "x"}', r"line 2: schema 99 is newer"),
    ],
)
def test_a_foreign_or_truncated_line_is_named(results, line, message):
    append("trial", {"id": "a"})
    with (results / "trial.jsonl").open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(RecordError, match=message):
        load_records("trial")


def test_missing_results_say_how_to_make_them():
    with pytest.raises(RecordError, match="gilib.experiments run nothing"):
        load_records("nothing")


def test_unwritable_results_raise(results, monkeypatch):
    monkeypatch.setenv("GILIB_RESULTS", str(results / "file"))
    (results / "file").write_text("in the way")
    with pytest.raises(RecordError, match="cannot write"):
        append("trial", {"id": "a"})


def test_identity_depends_on_every_field():
    base = ToyConfig()
    assert identity(base) == identity(ToyConfig())
    changed = {identity(dataclasses.replace(base, **{field.name: "x"})) for field in dataclasses.fields(base)}
    assert len(changed) == len(dataclasses.fields(base))
    assert identity(base) not in changed


def test_best_scale_keeps_only_the_largest():
    records = [{"scale": "smoke"}, {"scale": "reduced", "id": 1}, {"scale": "reduced", "id": 2}]
    assert [record["id"] for record in best_scale(records)] == [1, 2]
    assert best_scale([]) == []


def test_provenance_is_plain_data():
    found = json.loads(json.dumps(provenance()))
    assert {"gilib", "torch", "python", "hardware", "threads", "revision"} == set(found)


def test_printed_tables_keep_their_digits(monkeypatch):
    monkeypatch.delenv("GILIB_RESULTS")
    rows = printed("ober2021_table2_toy_elbo_variances")
    assert {row["value"] for row in rows if row["method"] == "global_inducing"} >= {"2.236", "0.4820"}
    with pytest.raises(RecordError, match="there are .*repro_gip_elbo_iwbo"):
        printed("table_of_dreams")


def test_select_matches_settings_at_the_largest_scale():
    for scale, method, seed in (
        ("smoke", "gi", 0),
        ("paper", "gi", 0),
        ("paper", "gi", 1),
        ("smoke", "fac", 0),
    ):
        append("trial", {"id": scale + method, "scale": scale, "config": {"method": method, "seed": seed}})
    assert [record["config"]["seed"] for record in select("trial", method="gi")] == [0, 1]
    assert [record["scale"] for record in select("trial", method="fac")] == ["smoke"]
    assert select("trial", method="li") == select("never_run") == []
