"""The report on what the repository records: scales, lengths of training, and commands that repeat a row."""

import shlex
from collections import Counter
from pathlib import Path

import pytest

from experiments import load_records, report
from experiments.__main__ import _parser
from experiments.ober2021 import cifar10, uci
from experiments.registry import EXPERIMENTS
from experiments.report import Length
from experiments.report.rules.ober2021 import DGP_METHODS
from experiments.runner.groups import select_configs
from experiments.runner.identity import identity, record_identity

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
