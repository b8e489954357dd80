"""What an estimator is told arrives where the work is done: at the recipe, its training and the draws."""

import warnings

import numpy as np
import pytest
import torch

from gilib.recipes import Recipe, Trained, recommended
from gilib.sklearn import BayesianClassifier, BayesianRegressor, estimator
from gilib.training import History

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X[:, 0] - X[:, 1] ** 2
LABELS = (Y > 0).astype(int)
QUICK_RECIPE = recommended("network", steps=2)


@pytest.fixture
def trained(monkeypatch):
    """The recipes that were trained, with the options of their trainings."""
    seen, train = [], Recipe.train

    def spied(recipe, x, y, **options):
        seen.append((recipe, options))
        return train(recipe, x, y, **options)

    monkeypatch.setattr(Recipe, "train", spied)
    return seen


def test_settings_are_those_of_the_recipe(trained):
    """Also of the mean beside noise that varies; inducing points make a process sparse."""
    given = {"steps": 3, "lr": 0.011, "batch_size": 7, "num_inducing": 9}
    BayesianRegressor("deep_gp", random_state=0, **given).fit(X, Y)
    assert {name: getattr(trained[-1][0], name) for name in given} == given
    model = BayesianRegressor("gp", num_inducing=9, steps=2, random_state=0).fit(X, Y)
    (process,), sparse = model.net_.layers, (9, 9, 2)
    assert len(process.inducing_inputs) == 9
    BayesianRegressor("heteroscedastic_gp", num_inducing=9, steps=2, random_state=0).fit(X, Y)
    for recipe in (trained[-2][0], trained[-1][0].mean):
        assert (recipe.num_inducing, recipe.num_exact, recipe.steps) == sparse
    assert (trained[-1][0].steps, trained[-1][0].num_inducing) == (2, 9)
    for kind, y in ((BayesianRegressor, Y), (BayesianClassifier, LABELS)):
        for seed, verbose in ((5, False), (6, True)):
            kind("network", steps=2, random_state=seed, verbose=verbose).fit(X, y)
            assert (trained[-1][1]["seed"], trained[-1][1]["progress"]) == (seed, verbose)


@pytest.mark.parametrize(
    ("model", "y", "wanted"),
    [
        (BayesianRegressor(steps=2), Y, "heteroscedastic_gp"),
        (BayesianRegressor(steps=2, lr=0.1), Y, "network"),
        (BayesianRegressor(steps=2, batch_size=9), Y, "network"),
        (BayesianClassifier(steps=2), LABELS, "gp"),
        (BayesianClassifier(steps=2, hidden=(3,)), LABELS, "network"),
    ],
)
def test_without_a_name_size_kind_and_settings_choose(model, y, wanted):
    assert model.set_params(random_state=0).fit(X, y).model_ == wanted


@pytest.mark.parametrize(("trace", "level"), [(torch.zeros(400), True), (torch.linspace(0, 9, 400), False)])
def test_converged_is_what_the_history_says(monkeypatch, trace, level):
    train, said = Recipe.train, History(trace, 0)
    monkeypatch.setattr(Recipe, "train", lambda *given, **own: Trained(*train(*given, **own)[:2], said))
    model = BayesianRegressor("network", steps=2, random_state=0).fit(X, Y)
    assert model.converged_ is level and model.n_iter_ == 400


@pytest.mark.parametrize("method", ["sample_y", "sample_functions"])
def test_other_random_states_draw_other_functions(method):
    model = BayesianRegressor("network", steps=2, random_state=0).fit(X, Y)
    first, again, other = (getattr(model, method)(X, 3, random_state=s) for s in (1, 1, 2))
    assert np.array_equal(first, again) and (first != other).all()


def test_samples_of_classes_are_drawn_apart_from_the_functions(monkeypatch):
    """From one seed the labels would depend on the very numbers of which the functions are made."""
    model, seeds = BayesianClassifier("network", steps=2, random_state=0).fit(X, LABELS), []
    predict, rand = estimator.predict_batches, torch.rand

    def spied(call):
        return lambda *given, **own: seeds.append(own["generator"].initial_seed()) or call(*given, **own)

    monkeypatch.setattr(estimator, "predict_batches", spied(predict))
    monkeypatch.setattr(torch, "rand", spied(rand))
    model.sample_y(X, 3, random_state=4)
    assert seeds[0] == 4 and len(set(seeds)) == 2


UNREAD = {
    "a process has no hidden layers": (BayesianRegressor("gp", hidden=(5,)), Y, "'gp' does not read hidden"),
    "nor a learning rate": (BayesianRegressor("gp", lr=0.1, batch_size=9), Y, "read lr, batch_size: leave"),
    "a deep one has no hidden layers": (BayesianRegressor("deep_gp", hidden=(5,)), Y, "does not read hidden"),
    "a recipe says all": (BayesianRegressor(recipe=QUICK_RECIPE, steps=3), Y, "of your own does not read"),
    "nor for classes": (BayesianClassifier("gp", lr=0.1), LABELS, "'gp' does not read lr"),
    "a network reads all": (BayesianRegressor(hidden=(5,), lr=0.1, batch_size=9), Y, None),
    "somebody reads it": (BayesianRegressor("auto", hidden=(5,), lr=0.1), Y, None),
}


@pytest.mark.parametrize("name", UNREAD)
def test_settings_that_nobody_reads_are_named(name):
    model, y, message = UNREAD[name]
    steps = {} if model.recipe is not None else {"steps": 2}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.set_params(random_state=0, **steps).fit(X, y)
    said = [str(warning.message) for warning in caught if "does not read" in str(warning.message)]
    assert len(said) == (message is not None) and all(message in text for text in said)
