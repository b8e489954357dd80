"""Printed tables and records made up for the tests of the report, and where they lie."""

import csv
import json
import sys

import pytest

from experiments import report
from experiments.report import Rule

COLUMNS = (
    "source,table,dataset,n,d,model,architecture,prior,method,baseline,depth,metric,value,stderr,units,bold,note"
).split(",")
RULE = Rule(
    "trial",
    lambda claim: {"dataset": claim.dataset, "method": claim.method or None},
    {"test_log_likelihood": "score", "rmse": "error", "variance_F2": "variances.1"},
)


def print_table(results, name="made_up", *rows):
    """Write a printed table; a row that says nothing is yacht's test log-likelihood."""
    usual = dict.fromkeys(COLUMNS, "") | {"source": "A & B (2000)", "table": "Table 1", "dataset": "yacht"}
    usual |= {"method": "gi", "metric": "test_log_likelihood", "value": "0.60", "units": "nats"}
    (results / "printed").mkdir(exist_ok=True)
    with (results / "printed" / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(usual | row for row in rows)


def record(results, *records):
    """Append records of the experiment `trial`: metrics, and fields that differ from the usual."""
    path = results / "trial.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    for given in records:
        config = {"dataset": "yacht", "method": "gi", "split": len(lines)} | given.get("config", {})
        config = {name: value for name, value in config.items() if value is not None}
        usual = {"schema": 1, "id": f"id{len(lines) + 1}", "experiment": "trial", "scale": "paper"}
        usual |= {"metrics": {}, "provenance": {"revision": "abc", "hardware": "a <CPU>"}}
        lines.append(json.dumps(usual | given | {"config": config}))
    path.write_text("\n".join(lines) + "\n")


def scores(*values, **fields):
    metrics = ({"score": value, "error": value, "variances": [0.0, value]} for value in values)
    return [{"metrics": own, **fields} for own in metrics]


def compare(papers, *records, rule=RULE, **row):
    print_table(papers, "made_up", row)
    record(papers, *records)
    (found,) = report.comparisons({"made_up": rule})
    return found


@pytest.fixture(scope="session")
def committed():
    """Every comparison with what the repository records, made once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GILIB_RESULTS", raising=False)
        return report.comparisons()


@pytest.fixture
def papers(results, monkeypatch):
    """An empty results directory that may hold printed tables."""
    for name in ("experiments.printed", "experiments.report.claims"):  # which functions of these names hide
        monkeypatch.setattr(sys.modules[name], "PRINTED", results / "printed")
    return results
