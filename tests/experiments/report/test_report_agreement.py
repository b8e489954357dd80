"""Agreement of our numbers with the printed ones, against cases by hand."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import report
from experiments.report import Comparison
from experiments.report.comparing import DIRECTIONS
from experiments.report.measuring import Measured, RecordLine
from tests.experiments.report.conftest import RULE, compare, scores


@pytest.mark.parametrize(
    ("values", "row", "combined", "verdict"),
    [
        # s.e. 1 of [1, 3]; printed 2.4; half a unit of 0.1: sqrt(1 + 5.76 + 0.0025)
        ([1.0, 3.0], {"value": "0.0", "stderr": "2.4"}, 2.600480724, "agrees"),
        ([9.0, 11.0], {"value": "0.0", "stderr": "2.4"}, 2.600480724, "better"),
        ([-9.0, -11.0], {"value": "0.0", "stderr": "2.4"}, 2.600480724, "worse"),
        # no printed error: sqrt(1 + 0.0025); one run: sqrt(2.4² + 0.0025)
        ([1.0, 3.0], {"value": "0.0"}, 1.001249220, "agrees"),
        ([5.0], {"value": "0.0", "stderr": "2.4"}, 2.400520777, "better"),
        ([4.8], {"value": "0.0", "stderr": "2.4"}, 2.400520777, "agrees"),
        # neither: only rounding, whose edge is two half units away
        ([0.7], {"value": "0.6"}, 0.05, "agrees"),
        ([0.701], {"value": "0.6"}, 0.05, "better"),
        ([0.5], {"value": "0.6"}, 0.05, "agrees"),
        ([1.1], {"value": "1.0"}, 0.05, "agrees"),
        ([0.499], {"value": "0.6"}, 0.05, "worse"),
        ([0.601], {"value": "0.60"}, 0.005, "agrees"),
        ([0.611], {"value": "0.60"}, 0.005, "better"),
        ([74.0], {"value": "73"}, 0.5, "agrees"),
        ([74.5], {"value": "73"}, 0.5, "better"),
        # smaller is better, and no side is better
        ([0.701], {"value": "0.6", "metric": "rmse"}, 0.05, "worse"),
        ([0.499], {"value": "0.6", "metric": "rmse"}, 0.05, "better"),
        ([0.701], {"value": "0.6", "metric": "variance_F2"}, 0.05, "differs"),
        ([0.499], {"value": "0.6", "metric": "variance_F2"}, 0.05, "differs"),
        # a printed error of zero is one below its last digit
        ([0.0001, 0.0003], {"value": "0.00", "stderr": "0.00", "metric": "rmse"}, 0.005000999900, "agrees"),
    ],
)
def test_agreement_by_hand(papers, values, row, combined, verdict):
    found = compare(papers, *scores(*values), **row)
    assert found.combined_error == pytest.approx(combined, rel=1e-9)
    assert found.deviation == pytest.approx((sum(values) / len(values) - float(row["value"])) / combined)
    assert found.verdict == verdict


def test_a_print_of_one_draw_has_our_spread(papers):
    """[1, 3] has standard deviation √2 and standard error 1: sqrt(1 + 2 + 0.0025). One run has neither."""
    rule = replace(RULE, print_is_one_draw=True)
    found = compare(papers, *scores(1.0), rule=rule, value="0.0")
    assert found.measured.spread is None and found.combined_error == pytest.approx(0.05)
    found = compare(papers, *scores(3.0), rule=rule, value="0.0")
    assert found.combined_error == pytest.approx(math.sqrt(3.0025))
    assert found.measured.spread == pytest.approx(math.sqrt(2))


def test_every_printed_metric_with_a_better_side_is_known():
    """The metrics that are only equal or not, named one by one: a new one must choose."""
    printed = {claim.metric for claim in report.claims()}
    neither = {"variance_F1", "variance_F2", "variance_F3", "time_per_epoch"}
    assert printed - set(DIRECTIONS) == neither | {"tll_difference", "frequency_method_better"}


numbers = st.floats(-100, 100).map(lambda value: round(value, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=4), numbers, st.sampled_from(["", "0.5", "20"]))
def test_the_mirror_image_has_the_same_verdict(values, value, stderr):
    names = "source table dataset model architecture prior method baseline depth units note".split()
    claim = dict.fromkeys(names, "")
    verdicts = []
    for sign, metric in ((1, "test_log_likelihood"), (-1, "rmse")):
        printed = report.Claim("f", 1, metric=metric, value=f"{sign * value:.3f}", stderr=stderr, **claim)
        sources = tuple(RecordLine(k, {}) for k, _ in enumerate(values))
        found = Comparison(printed, Measured("paper", tuple(sign * each for each in values), sources))
        apart = abs(sum(values) / len(values) - value)
        assert (found.verdict == "agrees") == (apart <= 2 * found.combined_error * (1 + 1e-9))
        verdicts.append(found.verdict)
    assert verdicts[0] == verdicts[1]
