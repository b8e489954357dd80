"""What both experiments have recorded meets; what one of them lacks, or is not ours, does not."""

from experiments.comparisons.guide import POSTERIORS, RECIPES, together
from experiments.comparisons.rivals import OURS


def record(method, split=0, **metrics):
    return {"config": {"dataset": "yacht", "split": split, "method": method}, "metrics": metrics}


def test_posteriors_meet_recipes_on_the_cells_that_both_have():
    posteriors = [
        record(method, split, log_likelihood=-2.0, train_process_seconds=3.0)
        for split in (0, 1, 2)
        for method in (*POSTERIORS, "hmc")
    ]
    posteriors[0] |= {"metrics": {}, "diverged_at": 7}
    against = [
        record(method, split, elbo=float(k), process_seconds=5.0)
        for split in (0, 1, 3)
        for k, method in enumerate((*OURS, "forest"))
        if (split, method) != (1, OURS[0])
    ]
    found = together(posteriors, against)
    assert set(found) == {("yacht", 0)}  # split 1 lacks a recipe, 2 all of them, 3 the posteriors
    (own,) = found.values()
    assert set(own) == {*POSTERIORS, *RECIPES}
    assert own[POSTERIORS[0]] == {} and own[POSTERIORS[1]]["process_seconds"] == 3.0
    assert own["auto"]["elbo"] == own[OURS[-1]]["elbo"]
    assert own["auto"]["process_seconds"] == 5.0 * len(OURS)
