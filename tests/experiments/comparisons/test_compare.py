"""A posterior of one's own among the recorded ones: trained as they were, ranked, refused in words."""

import statistics

import pytest

import gilib
from experiments import load_records
from experiments.comparisons import compare as comparing
from experiments.comparisons.compare import Comparison, compare
from experiments.comparisons.methods import METHODS
from experiments.comparisons.posteriors import SCALES, of_size
from experiments.comparisons.posteriors_run import trained
from experiments.comparisons.tasks import task, validation_task
from tests.experiments.recorded import JOB


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Trainings of the smoke scale beside what the repository records of the reduced one."""
    monkeypatch.delenv("GILIB_RESULTS")
    monkeypatch.setitem(SCALES, comparing.SCALE, SCALES["smoke"])


def test_a_posterior_and_a_method_train_like_those_of_the_book():
    found = compare({"mine": gilib.Factorised(), "theirs": METHODS["bbb"]}, ["yacht"], 1, setting=0.03)
    config = of_size(SCALES["smoke"], "yacht", "theirs", 0, "reduced", 0.03)
    own = trained(METHODS["bbb"], config, task("yacht", 0), JOB)
    (scores,) = found.scores.values()
    assert scores["theirs"] == own["metrics"]["log_likelihood"] != scores["mine"]
    recorded = {
        run["config"]["method"]: run["metrics"].get("log_likelihood")
        for run in load_records("posteriors")
        if (run["scale"], run["config"]["dataset"], run["config"]["split"]) == ("reduced", "yacht", 0)
    }
    assert all(scores[name] == recorded[name] for name in METHODS)


def test_of_several_settings_the_best_on_validation_data_is_taken():
    held_out = validation_task("yacht", 0)
    score = {}
    for setting in (1e-4, 0.05):
        config = of_size(SCALES["smoke"], "yacht", "mine", 0, "reduced", setting)
        own = trained(METHODS["bbb"], config, held_out, JOB)
        score[setting] = own["metrics"]["log_likelihood"]
    best = max(score, key=score.get)
    several, one = (compare({"mine": METHODS["bbb"]}, ["yacht"], 1, s) for s in ([*score], best))
    assert several.scores == one.scores and len({*score.values()}) == 2


def test_a_table_has_the_best_rank_first_means_over_splits_and_ours_bold():
    first, second = {"gi": -1.0, "li": -3.0, "mine": -2.0}, {"gi": -2.0, "li": None, "mine": -1.0}
    scores = {("yacht", 0): first, ("yacht", 1): second}
    lines = str(Comparison(scores, {"mine": 0.03})).splitlines()
    assert lines[0] == "| method | yacht | mean rank |"
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines[2:]}
    assert rows["**mine** at 0.03"] == [f"−{statistics.mean((2, 1)):.2f}", "1.5"]
    assert [*rows][-1] == "local inducing" and rows["local inducing"] == ["–", "3.0"]


@pytest.mark.parametrize(
    ("methods", "more", "kind", "words"),
    [
        ({}, {}, ValueError, "needs a method"),
        ({"gi": gilib.Factorised()}, {}, ValueError, "gi.*another name"),
        ({"global inducing": gilib.Factorised()}, {}, ValueError, "another name"),  # its row is called so
        ({"mine": gilib.NealPrior()}, {}, TypeError, "mine.*NealPrior"),
        ({"mine": gilib.Factorised}, {}, TypeError, "an instance, got the class Factorised"),
        ({"mine": gilib.Factorised()}, {"sets": ["mars"]}, ValueError, "mars"),
        ({"mine": gilib.Factorised()}, {"sets": []}, ValueError, r"a list of sets.*\[\]"),
        ({"mine": gilib.Factorised()}, {"sets": "yacht"}, ValueError, "a list of sets"),
        ({"mine": gilib.Factorised()}, {"splits": 0}, ValueError, "splits"),
        ({"mine": gilib.Factorised()}, {"splits": 400}, ValueError, "fewer splits"),
        ({"mine": gilib.Factorised()}, {"setting": -1.0}, ValueError, "setting"),
        ({"mine": gilib.Factorised()}, {"setting": ()}, ValueError, "a setting"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_work_starts(methods, more, kind, words):
    with pytest.raises(kind, match=words):
        compare(methods, **more)
