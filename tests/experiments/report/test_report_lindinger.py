"""The rules of Lindinger et al. (2020): which records answer which claim, and comparisons in pairs."""

import json

import numpy as np
import pytest
from scipy import stats

from experiments import report
from experiments.report.rules.lindinger2020 import RULES
from tests.experiments.report.conftest import print_table

TABLE_1, TABLE_2, TABLE_S3, TABLE_S4, TABLE_S5 = RULES


def one(method, depth, repetition, likelihoods, *, scale="paper", task="extrapolation", **fields):
    config = {"dataset": "yacht", "task": task, "repetition": repetition, "method": method, "depth": depth}
    score = float(np.mean(likelihoods))
    head = {"schema": 1, "id": f"{method}{depth}{repetition}{scale}{task}", "experiment": "structured_uci"}
    metrics = {"test_log_likelihood": score, "elbo_total": 100.0 * score}
    points = {"test_points": {"log_likelihood": list(likelihoods)}}
    return head | {"scale": scale, "config": config, "metrics": metrics} | points | fields


def write(papers, *records):
    (papers / "structured_uci.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def compared(papers, table, **row):
    print_table(papers, table, {"depth": "", "stderr": "0.1", "value": "0.5"} | row)
    found = report.comparisons({table: RULES[table]})
    (own,) = (each for each in found if each.claim.file == table)
    return own.measured


def test_numbers_of_one_method_are_those_of_its_task_and_depth(papers):
    write(
        papers,
        *(one("star", 3, k, [float(k)]) for k in range(4)),
        one("star", 3, 9, [50.0], task="interpolation"),
        one("star", 2, 0, [60.0]),
        one("mf", 3, 0, [70.0]),
    )
    row = {"method": "star_dgp", "depth": "3"}
    found = compared(papers, TABLE_S3, **row)
    assert found.values == (0.0, 1.0, 2.0, 3.0) and found.wanted == 10 and not found.is_whole
    assert found.error == pytest.approx(stats.sem(found.values))
    assert compared(papers, TABLE_1, **row).values == (50.0,)


def test_a_frequency_is_that_of_the_pairs_of_each_repetition(papers):
    """Repetition 2 has no partner, that of 3 diverged, 4 has one at another scale only."""
    write(
        papers,
        *(one("star", 3, k, [1.0, 2.0, 3.0, 4.0]) for k in range(5)),
        one("mf", 3, 0, [0.0, 9.0, 9.0, 9.0]),
        one("mf", 3, 1, [0.0, 0.0, 0.0, 9.0]),
        one("mf", 3, 3, [0.0] * 4) | {"metrics": {}, "diverged_at": 5},
        one("mf", 3, 4, [0.0] * 4, scale="reduced"),
        one("mf", 2, 0, [0.0] * 4),
    )
    row = {"method": "star_dgp", "baseline": "mf_dgp"}
    found = compared(papers, TABLE_2, metric="frequency_method_better", units="fraction", **row)
    assert found.values == (0.25, 0.75) and (len(found.sources), found.diverged) == (3, 1)
    found = compared(papers, TABLE_S4, metric="tll_difference", **row)
    assert found.values == pytest.approx((2.5 - 6.75, 2.5 - 2.25))


def test_every_printed_number_has_a_rule_and_the_report_renders():
    """What is not recorded is listed as not run."""
    found = [each for each in report.comparisons() if each.claim.file in RULES]
    assert len(found) == 64 + 16 + 64 + 40 + 16
    assert {each.verdict for each in found} == {"not run"}
    text, page = report.text(), report.printed_tables(found)._repr_html_()
    for name in ("Table 1", "Table 2", "Table S3", "Table S4", "Table S5"):
        assert f"Lindinger et al. (2020), {name}" in text and f"Lindinger et al. (2020), {name}" in page
