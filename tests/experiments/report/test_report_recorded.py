"""The report on what the repository records: printed tables, rules, scales, lengths, commands."""

import csv
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from experiments import RecordError, load_records, report, select
from experiments.__main__ import _parser
from experiments.ober2021 import cifar10, uci
from experiments.printed import PRINTED, QUOTED
from experiments.registry import EXPERIMENTS
from experiments.report import Length
from experiments.report.rules.ober2021 import DGP_METHODS
from experiments.runner.groups import select_configs
from experiments.runner.identity import identity, record_identity
from tests.experiments.report.conftest import print_table

ROOT = Path(__file__).parents[3]


@pytest.fixture
def found(committed, kept):
    """Every comparison of which there is a run."""
    return [each for each in committed if each.measured]


def experiment(comparison):
    return comparison.measured.sources[0].record["experiment"]


def test_all_splits_of_a_deep_process_are_shown_where_they_are_recorded(found):
    """A cell that has the paper's twenty splits is not shown by five reduced ones, in any of three tables."""
    shown = [each.claim for each in found if experiment(each) == "dgp_uci" and each.measured.is_whole]
    shown = Counter((claim.dataset, DGP_METHODS[claim.method], int(claim.depth)) for claim in shown)
    runs = [run["config"] for run in load_records("dgp_uci") if run["scale"] == "paper"]
    recorded = Counter((run["dataset"], run["method"], run["depth"]) for run in runs)
    assert shown == {cell: 3 for cell, splits in recorded.items() if splits == 20} != {}


def test_thirty_of_a_thousand_epochs_are_not_as_long_as_the_papers(found):
    """The scale "long" is the paper's length on the UCI sets, and not on CIFAR-10."""
    lengths = {(experiment(each), each.length) for each in found if each.measured.scale == "long"}
    assert lengths == {("uci", Length.FULL), ("cifar10", Length.SHORTER)}
    long, paper = uci.SCALES["long"], uci.SCALES["paper"]
    assert (long.steps, long.fac_steps, long.samples) == (paper.steps, paper.fac_steps, paper.samples)
    assert cifar10.SIZES["long"]["steps"] < cifar10.SIZES["paper"]["steps"]


def test_the_command_of_a_row_chooses_its_trainings(found):
    """The fullest row of every table and scale: with a baseline, those of both methods, else its own."""
    fullest = sorted(found, key=lambda each: len(each.measured.sources))
    rows = {(each.claim.file, each.measured.scale): each for each in fullest}
    assert len(rows) > 15
    for each in rows.values():
        python, *words = shlex.split(report.command_text(each.measured))
        assert [python, *words[:2]] == ["python", "-m", "experiments"]
        options = _parser().parse_args(words[2:])
        assert options.again
        kind = EXPERIMENTS[options.name].config
        chosen = select_configs(EXPERIMENTS[options.name], options.scale, options.only)
        again = {identity(options.name, config) for config in chosen}
        own = {record_identity(source.record, kind) for source in each.measured.sources}
        assert own < again and len(again) == 2 * len(own) if each.claim.baseline else own == again


def test_the_counts_of_agreement_are_those_of_the_report_and_keep_lengths_of_training_apart(committed):
    parts = report.by_length(committed)
    full, short = (report.totals(parts[length]) for length in (Length.FULL, Length.SHORTER))
    assert full.agrees / full.claims > 1 / 2 and 1 / 3 < short.agrees / short.claims < 0.4
    for page in ("README.md", "book/intro.md"):
        text = " ".join((ROOT / page).read_text().split())
        long_ones = f"more than half of our numbers agree with theirs: {full.agrees} of {full.claims}."
        assert f"Where we trained as long as the papers, {long_ones}" in text
        assert "Where we trained shorter, more than a third agree, and" in text


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
