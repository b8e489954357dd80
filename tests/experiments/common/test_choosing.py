"""One setting for all sets: by the mean loss against each set's best."""

import math

from experiments.common.choosing import choose, priced
from tests.support import refusals

SCORES = {
    "bold": {"yacht": [2.0, 4.0], "wine": [None, 9.0]},
    "timid": {"yacht": [1.0, 1.0], "wine": [1.0, 1.0]},
    "even": {"yacht": [2.0, 2.5], "wine": [0.5, 0.5]},
}


def test_the_least_mean_loss_wins_and_divergence_never_does():
    choice = choose(SCORES)
    assert choice.setting == "even" and choice.losses == {"yacht": 0.75, "wine": 0.5}
    assert choice.loss == 0.625
    assert priced("timid", SCORES).losses == {"yacht": 2.0, "wine": 0.0}
    assert priced("bold", SCORES).losses == {"yacht": 0.0, "wine": math.inf}


def test_a_set_on_which_all_diverged_makes_every_price_infinite():
    nowhere = {name: own | {"naval": [None]} for name, own in SCORES.items()}
    assert priced("even", nowhere).loss == math.inf


BAD = ({}, {"a": {}}, {"a": {"yacht": []}}, {"a": {"yacht": [1.0]}, "b": {"wine": [1.0]}})
test_settings_must_have_scores_on_the_same_sets = refusals(
    [
        *((lambda bad=bad: choose(bad), "every setting needs scores on the same sets") for bad in BAD),
        (lambda: priced("none", SCORES), "none has no scores: choose one of"),
    ]
)
