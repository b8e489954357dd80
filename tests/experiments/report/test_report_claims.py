"""The printed tables, and the rules that say which records answer a claim."""

import csv

import numpy as np
import pytest
from scipy import stats

from experiments import RecordError, report, select
from experiments.printed import PRINTED, QUOTED
from tests.experiments.report.conftest import print_table


def test_every_printed_row_is_a_claim(kept):
    rows = 0
    for path in PRINTED.glob("*.csv"):
        if path.stem not in QUOTED:
            rows += len(list(csv.reader(path.open(newline="", encoding="utf-8")))) - 1
    claims = report.claims()
    assert len(claims) == len({(claim.file, claim.row) for claim in claims}) == rows > 900


def test_tables_come_by_source_and_number(papers):
    for name in ("zz_new", "lindinger2020_table1", "ober2021_table10", "ober2021_table2"):
        print_table(papers, name, {})
    expected = ["ober2021_table2", "ober2021_table10", "lindinger2020_table1", "zz_new"]
    assert [claim.file for claim in report.claims()] == expected


def test_rules_answer_tables_that_exist_and_all_of_their_metrics(kept):
    """All but the times of Table 1 and the works that it compares with."""
    claims = report.claims()
    assert set(report.RULES) <= {claim.file for claim in claims}
    for claim in claims:
        if rule := report.RULES.get(claim.file):
            answered = claim.metric in rule.metrics and None not in rule.settings(claim).values()
            left_out = claim.metric == "time_per_epoch" or claim.architecture == "prior work"
            assert answered != left_out


def test_recorded_tables_are_covered(committed):
    """What the repository records: the toy problem and the reproduction, at the paper's scale."""
    for group in report.by_table(committed):
        if group[0].claim.file in ("ober2021_table2_toy_elbo_variances", "repro_gip_elbo_iwbo"):
            assert all(each.measured.is_whole for each in group)
        if group[0].claim.file not in report.RULES:
            assert report.totals(group).not_run == len(group)


def test_toy_claims_are_those_of_the_chapter(kept, committed):
    """Normalised runs; of the reproduction's sweeps, those at its own prior scale and inducing points."""
    ours = {
        (each.claim.file[:4], each.claim.method, each.claim.metric): each.measured
        for each in committed
        if each.claim.file in ("ober2021_table2_toy_elbo_variances", "repro_gip_elbo_iwbo")
    }
    for paper, method in {"factorised": "fac", "local_inducing": "li", "global_inducing": "gi"}.items():
        runs = [record["metrics"] for record in select("toy", method=method, normalise=True)]
        assert ours["ober", paper, "elbo"].mean == pytest.approx(np.mean([run["elbo"] for run in runs]))
        for layer in range(3):
            values = [run["layer_variances"][layer] for run in runs]
            assert ours["ober", paper, f"variance_F{layer + 1}"].mean == pytest.approx(np.mean(values))
            assert ours["ober", paper, f"variance_F{layer + 1}"].error == pytest.approx(stats.sem(values))
    for metric in ("elbo", "iwbo"):
        runs = select("reproduction", prior_scale=2.0, num_inducing=100)
        mean = np.mean([run["metrics"][metric] for run in runs])
        assert ours["repr", "global_inducing", metric].mean == pytest.approx(mean)
        spread = np.std([run["metrics"][metric] for run in runs], ddof=1)
        assert ours["repr", "global_inducing", metric].spread == pytest.approx(spread)


@pytest.mark.parametrize(
    ("name", "value"), [("value", ""), ("value", "nan"), ("value", "1e-3"), ("stderr", "± 1")]
)
def test_a_row_without_a_number_is_named(papers, name, value):
    print_table(papers, "made_up", {}, {name: value})
    message = f"made_up.csv, row 2: {name} must be a number like -2.58, got '{value}'"
    with pytest.raises(RecordError, match=message):
        report.claims()


def test_no_printed_tables_and_a_missing_column_are_named(papers):
    with pytest.raises(RecordError, match="no printed tables in .*printed: run from a checkout"):
        report.comparisons({})
    (papers / "printed").mkdir()
    (papers / "printed" / "short.csv").write_text("source,value\nA,1\n")
    with pytest.raises(RecordError, match="short.csv, row 1: no table, dataset, .*; add what is missing"):
        report.claims()
