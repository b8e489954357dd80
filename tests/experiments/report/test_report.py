"""The reproducibility report: claims, our numbers for them, their agreement by hand, and totals."""

import math
from dataclasses import asdict, astuple, dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import RecordError, report
from experiments.registry import EXPERIMENTS
from experiments.report import Comparison, Length, Rule, Verdict
from experiments.report.comparing import DIRECTIONS
from experiments.report.measuring import Measured, RecordLine
from experiments.report.yardstick import yardstick
from experiments.runner.experiment import Experiment
from tests.experiments.report.conftest import RULE, compare, print_table, record, scores

DIVERGED = {"metrics": {}, "diverged_at": 3}


def test_the_largest_scale_counts_and_smoke_never(papers):
    found = compare(papers, *scores(1.0, scale="smoke"))
    assert found.measured is None and found.verdict == Verdict.NOT_RUN and found.deviation is None
    found = compare(papers, *scores(2.0, 3.0, scale="reduced"))
    assert found.measured.scale == "reduced" and not found.measured.is_whole
    assert found.length == Length.SHORTER and found.measured.values == (2.0, 3.0)
    record(papers, *scores(5.0, scale="paper"))
    (found,) = report.comparisons({"made_up": RULE})
    assert found.measured.scale == "paper" and found.measured.values == (5.0,)
    assert [source.line for source in found.measured.sources] == [4]


@dataclass(frozen=True)
class Trial:
    dataset: str
    method: str
    split: int
    scale: str


@pytest.fixture
def grid(monkeypatch):
    """Two splits of three methods on yacht at two scales."""

    def configurations(scale):
        return (Trial("yacht", method, k, scale) for method in ("gi", "li", "fac") for k in (0, 1))

    experiment = Experiment("made up", Trial, configurations, list, scales=("reduced", "paper"))
    monkeypatch.setitem(EXPERIMENTS, "trial", experiment)


def trained(papers, scale, method, *values):
    for split, value in enumerate(values):
        record(papers, *scores(value, scale=scale, config={"method": method, "split": split}))


def test_a_claim_rests_on_the_largest_scale_that_is_complete_for_its_cell(papers, grid):
    """Not for its data set: what is begun displaces nothing, and no cell hides what another one has."""
    for method in ("gi", "li", "fac"):
        trained(papers, "reduced", method, 1.0, 1.0)
    trained(papers, "paper", "gi", 9.0, 9.0)
    trained(papers, "paper", "li", 9.0)
    print_table(papers, "made_up", {"method": "gi"}, {"method": "li"}, {"method": "fac"})
    found = [each.measured for each in report.comparisons({"made_up": RULE})]
    assert [each.scale for each in found] == ["paper", "reduced", "reduced"]
    assert [each.values for each in found] == [(9.0, 9.0), (1.0, 1.0), (1.0, 1.0)]


def test_while_nothing_is_complete_the_largest_scale_is_shown(papers, grid):
    trained(papers, "reduced", "gi", 1.0)
    trained(papers, "paper", "gi", 9.0)
    print_table(papers, "made_up", {"method": "gi"})
    (found,) = report.comparisons({"made_up": RULE})
    assert found.measured.scale == "paper"


def test_a_comparison_is_complete_when_both_of_its_cells_are(papers, grid):
    """Of the baseline half is recorded at paper scale: both are shown reduced, with every pair."""
    trained(papers, "paper", "gi", 100.0, 100.0)
    trained(papers, "paper", "li", 1.0)
    trained(papers, "reduced", "gi", 5.0, 6.0)
    trained(papers, "reduced", "li", 1.0, 1.0)
    rule = replace(
        RULE,
        metrics={"rmse": lambda own, other: own["metrics"]["error"] - other["metrics"]["error"]},
        baseline=lambda claim: {"dataset": claim.dataset, "method": claim.baseline},
    )
    print_table(papers, "made_up", {"metric": "rmse", "baseline": "li"})
    (found,) = report.comparisons({"made_up": rule})
    assert (found.measured.scale, found.measured.values) == ("reduced", (4.0, 5.0))
    assert found.measured.only == ("dataset=yacht", "method=gi", "method=li")


def test_only_records_with_the_claimed_settings_count(papers):
    """A setting that is none matches no record."""
    others = [*scores(7.0, config={"dataset": "boston"}), *scores(8.0, config={"method": "li"})]
    assert compare(papers, *others, *scores(1.0)).measured.values == (1.0,)
    assert compare(papers, *scores(1.0, config={"method": None}), method="").measured is None


def test_the_last_of_repeated_runs_counts(papers):
    split = {"config": {"split": 0, "lr": 0.1}}, {"config": {"split": 0, "lr": 0.2}}
    found = compare(papers, *scores(1.0, **split[0]), *scores(4.0), *scores(3.0, **split[1])).measured
    assert found.values == (4.0, 3.0), "in the order of the file"
    assert [source.record["id"] for source in found.sources] == ["id2", "id3"]


def test_where_every_run_diverged_there_is_no_number(papers):
    found = compare(papers, *scores(0.6, scale="reduced"), DIVERGED)
    assert found.measured.scale == "paper", "failures are not hidden behind a smaller scale"
    assert found.verdict == Verdict.DIVERGED and found.deviation is None
    count = report.totals([found])
    assert (count.covered, count.diverged, count.agrees, count.not_run) == (1, 1, 0, 0)


def test_fewer_repetitions_than_printed_are_not_the_papers_experiment(papers):
    rule = replace(RULE, repetitions=lambda claim: 3)
    found = compare(papers, *scores(0.6, 0.6), rule=rule)
    assert found.measured.scale == "paper" and not found.measured.is_whole
    assert found.length == Length.FULL, "as long, on fewer splits"
    record(papers, DIVERGED)
    (found,) = report.comparisons({"made_up": rule})
    assert found.measured.is_whole, "a diverged run has been run"


def test_entries_of_lists_and_unnamed_metrics(papers):
    assert compare(papers, *scores(2.5), metric="variance_F2").measured.values == (2.5,)
    assert compare(papers, *scores(2.5), metric="accuracy").measured is None


@pytest.mark.parametrize("key", ["scores", "variances.2", "variances", "score.0"])
def test_a_rule_that_asks_for_what_is_not_recorded_is_an_error(papers, key):
    rule = Rule("trial", RULE.settings, {"test_log_likelihood": key})
    with pytest.raises(RecordError, match=f"trial.jsonl, line 1: id1 has no metric '{key}'; correct the rul"):
        compare(papers, *scores(1.0), rule=rule)


def test_cifar_claims_find_their_records(papers):
    """The rules of Tables 1, 3 and 4 on records as `cifar10` writes them; Table 4 is of SVHN alone."""
    small = {"architecture": "small ResNet, 32 channels", "prior": "SpatialIWPrior", "method": "fac_to_gi"}
    names = {"1_cifar10": "accuracy", "3_ece": "expected_calibration_error"}
    names = {
        f"ober2021_table{n}": m for n, m in (names | {"4_entropy_ratio": "predictive_entropy_ratio"}).items()
    }
    rules = {name: report.RULES[name] for name in names}
    for name, metric in names.items():
        print_table(papers, name, small | {"metric": metric})
    config = {"network": "resnet8", "method": "fac_gi", "prior": "SpatialIWPrior (reference)"}
    config = asdict(next(EXPERIMENTS["cifar10"].configurations("reduced"))) | config
    config |= {"outside": "fashion-mnist", "dataset": None, "split": None, "scale": None}
    metrics = {"accuracy": 0.5, "expected_calibration_error": 0.25, "entropy_ratio": 0.75}
    head = {"experiment": "cifar10", "scale": "reduced", "metrics": metrics}

    def found(*changes):
        record(papers, *({**head, "config": config | change} for change in changes))
        (papers / "trial.jsonl").rename(papers / "cifar10.jsonl")
        return [each.measured and each.measured.values for each in report.comparisons(rules)]

    assert found({}, {"prior": "SpatialIWPrior"}, {"network": "resnet18"}) == [(50.0,), (0.25,), None]
    assert found({"outside": "svhn"})[-1] == (0.75,)


def test_totals_by_table_add_up(papers):
    print_table(papers, "ober2021_table1", {"value": "1.0"}, {"value": "9.0"}, {"dataset": "boston"})
    second = {"metric": "variance_F2", "value": "9.0"}
    print_table(papers, "other", {"value": "-9.0"}, second, {"dataset": "wine"})
    print_table(papers, "no_rule", {}, {})
    record(papers, *scores(1.0), *scores(2.0, scale="reduced", config={"dataset": "boston"}))
    record(papers, {"metrics": {}, "diverged_at": 0, "config": {"dataset": "wine"}})
    found = report.comparisons({"ober2021_table1": RULE, "other": RULE})
    first, nothing, other = (report.totals(group) for group in report.by_table(found))
    assert astuple(nothing) == (2, 2, 0, 0, 0, 0)  # claims, not run, agrees, better, disagree, diverged
    assert astuple(first) == (3, 0, 1, 1, 1, 0) and astuple(other) == (3, 0, 0, 1, 1, 1)
    every = report.totals(found)
    assert (every.claims, every.covered, every.not_run) == (8, 6, 2)
    assert every.agrees + every.better + every.disagree + every.diverged == every.covered
    lengths = report.by_length(found)
    assert [len(lengths[length]) for length in (Length.FULL, Length.SHORTER, Length.NONE)] == [5, 1, 2]
    assert all(report.totals(lengths[length]).better == 1 for length in (Length.SHORTER, Length.FULL))


def test_the_yardstick_has_the_best_of_our_means(papers):
    text = "dataset,value,stderr,method,splits,source\nyacht,0.17,0.11,DGP,20,A\nwine,-0.93,,dropout,20,B\n"
    file = "ober2021_table5_uci_bnn_test_ll"
    print_table(papers, file, {"method": "gi"}, {"method": "li"}, {"method": "fac"})
    (papers / "printed" / "best_known_uci_test_ll.csv").write_text(text)
    record(papers, *scores(0.1, 0.3), *scores(0.4, config={"method": "li"}))
    record(papers, {"metrics": {}, "diverged_at": 0, "config": {"method": "fac"}})
    found = report.comparisons({file: RULE})
    assert len(found) == 3, "it is not among the claims"
    yacht, wine = yardstick(found)
    assert yacht.ours.claim.method == "li" and (yacht.value, yacht.stderr) == ("0.17", "0.11")
    assert wine.ours is None and wine.stderr == ""


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
