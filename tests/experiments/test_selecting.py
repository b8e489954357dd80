"""Every data set is shown at the largest scale that is complete for it."""

import dataclasses

import pytest

from experiments import scales_of, select
from experiments.registry import EXPERIMENTS
from experiments.runner.records import RecordError
from experiments.runner.work import Work
from experiments.runner.writing import append
from tests.experiments import tiny
from tests.experiments.tiny import TINY

SCALES = ("smoke", "reduced", "long", "paper")


@pytest.fixture(autouse=True)
def grid(instead):
    """The tiny grid with all scales; its tasks stand for data sets, its seeds for cells."""
    instead(scales=SCALES)


def record(scale, *tasks, seeds=(0, 1), **body):
    """Record some of a grid."""
    configs = [c for c in tiny.configurations(scale) if c.task in tasks and c.seed in seeds]
    work = Work("tiny", lambda configs, job: [{"metrics": {"elbo": 1.0}} | body for _ in configs])
    append("tiny", work(tuple(configs)).records)


def shown(**options):
    """The scales of every task, as `select` has them."""
    found = select("tiny", each="task", **options)
    return {task: {r["scale"] for r in found if r["config"]["task"] == task} for task in ("sine", "cube")}


def test_a_value_takes_its_largest_complete_scale():
    assert scales_of("tiny", "task") == {} and select("tiny", each="task") == []
    record("reduced", "sine", "cube")
    record("long", "sine")
    assert shown() == {"sine": {"long"}, "cube": {"reduced"}}
    assert scales_of("tiny", "task") == {"sine": "long", "cube": "reduced"}
    assert [r["scale"] for r in select("tiny", each="task", task="sine", seed=1)] == ["long"]


def test_a_scale_that_is_named_is_that_of_the_record_and_names_that_nothing_has_are_refused():
    record("reduced", "sine")
    record("long", "sine")
    for scale in ("reduced", "long", "paper"):
        assert {r["scale"] for r in select("tiny", scale=scale)} == {scale} - {"paper"}
    with pytest.raises(ValueError, match="unknown field of tiny 'taks': choose one of .*'task'"):
        select("tiny", taks="sine")
    with pytest.raises(ValueError, match="unknown experiment 'tinny': choose one of "):
        select("tinny")


def test_what_was_only_begun_displaces_nothing():
    record("reduced", "sine", "cube")
    record("long", "sine", seeds=(0,))
    record("paper", "cube", seeds=(1,))
    assert shown() == {"sine": {"reduced"}, "cube": {"reduced"}}
    record("long", "sine", seeds=(1,))
    assert shown() == {"sine": {"long"}, "cube": {"reduced"}}


def test_trainings_that_diverged_are_recorded_but_not_shown():
    record("reduced", "sine", "cube")
    record("long", "sine", seeds=(0,))
    record("long", "sine", seeds=(1,), metrics={}, diverged_at=3)
    assert shown() == {"sine": {"long"}, "cube": {"reduced"}}
    assert len(select("tiny", each="task", task="sine")) == 1
    assert len(select("tiny", each="task", task="sine", include_diverged=True)) == 2


def test_while_nothing_is_complete_the_most_cells_are_shown_and_smoke_is_never_complete():
    record("smoke", "sine")
    record("reduced", "sine", seeds=(0,))
    assert shown()["sine"] == {"reduced"}
    assert shown(cells=["seed"])["sine"] == {"smoke"}
    record("reduced", "sine", seeds=(1,))
    assert shown(cells=["seed"])["sine"] == {"reduced"}


def test_a_grid_that_lacks_cells_of_a_smaller_scale_is_not_complete(monkeypatch):
    def searched_in_part(scale):
        return (c for c in tiny.configurations(scale) if scale != "paper" or c.seed == 0)

    narrow = dataclasses.replace(TINY, scales=SCALES, configurations=searched_in_part)
    monkeypatch.setitem(EXPERIMENTS, "tiny", narrow)
    record("reduced", "sine")
    record("paper", "sine", seeds=(0,))
    assert shown()["sine"] == {"paper"}
    assert shown(cells=["seed"])["sine"] == {"reduced"}


def test_a_grid_that_needs_other_records_first_is_not_complete(instead):
    def after_another(scale):
        if scale == "paper":
            raise RecordError("run another first")
        return tiny.configurations(scale)

    instead(scales=SCALES, configurations=after_another)
    record("reduced", "sine")
    assert shown()["sine"] == {"reduced"}
