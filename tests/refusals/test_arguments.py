"""Arguments are as their annotations say, or refused by name where they are given."""

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import gilib
from gilib import data, kernels, layers, likelihoods, models, posteriors, recipes, training
from gilib.arguments import Count, check_annotated, checked

X, Y = torch.linspace(-1.0, 1.0, 12)[:, None].expand(12, 3).contiguous(), torch.ones(12, 2)
IMAGES = torch.zeros(2, 3, 8, 8)
NAN = math.nan


def net():
    return models.mlp(3, (4,), 2, inducing_points=X[:5])


def draw():
    return net().draw(2)


RECIPE = dict(steps=2, num_inducing=5)
# call, the argument that is wrong, values that it may not have
VALUES = [
    (recipes.NetworkRecipe, "steps", (NAN, 0, 2.5, "3", None, True)),
    (recipes.NetworkRecipe, "lr", ("0.1", 0.0, -1.0, NAN)),
    (recipes.NetworkRecipe, "flat", (NAN, 1.0, "a")),
    (recipes.NetworkRecipe, "num_inducing", (-1, 0, 2.5, "3")),
    (recipes.NetworkRecipe, "batch_size", (2.5, 0)),
    (recipes.NetworkRecipe, "noise_variance", (-1.0, NAN)),
    (recipes.NetworkRecipe, "label_scale", (-2, "a")),
    (recipes.NetworkRecipe, "trial", (0, NAN)),
    (recipes.ProcessRecipe, "num_exact", (NAN, -1)),
    (recipes.DeepProcessRecipe, "depth", (0, "2")),
    (recipes.HeteroscedasticProcessRecipe, "tolerance", (NAN, 0.0)),
    (training.Plateau, "min_gain", (NAN, "0.1")),
    (lambda deadline: training.Checkpoint("run", deadline=deadline), "deadline", ("x", NAN)),
    (gilib.ScalePrior, "initial_log_alpha", (NAN, "a")),
    (gilib.SpatialIWPrior, "initial_log_nu", (NAN, "a")),
    (posteriors.Dropout, "rate", ("a", None, 1.0)),
    (training.LinearDecay, "start", (None, "a", NAN)),
    (likelihoods.PerOutputGaussian, "noise_variance", ([1.0, "a"], [-1.0])),
    (gilib.Adam, "betas", ((0.9,), (0.9, "a"))),
    (lambda in_features: models.deep_gp(in_features, 1, inducing_points=X), "in_features", ("3", 2.5)),
    (lambda in_features: models.sparse_gp(in_features, 1, inducing_points=X), "in_features", ("3", 2.5)),
    (lambda seed: data.toy(seed=seed), "seed", (None, "a", 2.5)),
    (lambda seed: models.inducing_start(X, 4, seed=seed), "seed", (None, "a", 2.5)),
    (lambda seed: gilib.recommended("network", **RECIPE).train(X, Y, seed=seed), "seed", (None, "a", 2.5)),
    (
        lambda classes: gilib.recommended("network", **RECIPE).train(X, Y, classes=classes),
        "classes",
        (2.5, "3", 0),
    ),
    (
        lambda kl_weight: gilib.elbo(draw(), gilib.Gaussian(0.1), X, Y, num_data=12, kl_weight=kl_weight),
        "kl_weight",
        ("a", None, NAN),
    ),
]
KINDS = [
    (recipes.NetworkRecipe, "hidden", (3, "a", None)),
    (recipes.NetworkRecipe, "lower", (gilib.NealPrior(), None, posteriors.Factorised)),
    (recipes.ProcessRecipe, "kernels", (kernels.RBF(), (1,))),
    (training.FallingStrips, "score", (3, None)),
    (training.Checkpoint, "path", (3, None)),
    (lambda x: training.EarlyStopping(gilib.Gaussian(), x, Y), "x", (None, "a")),
    (gilib.Adam, "groups", (None, [], "a")),
    (gilib.Adam, "betas", (3, "a")),
    (training.Speed, "replay", ("no", 1)),
    (likelihoods.PerOutputGaussian, "noise_variance", (None, "a", 1.0)),
    (lambda learn: likelihoods.PerOutputGaussian([1.0], learn), "learn", ("no", 1)),
    (lambda learn: likelihoods.HeteroscedasticGaussian([1.0], learn), "learn", ("no", 1)),
    (lambda learn: likelihoods.CorrelatedGaussian(2, learn=learn), "learn", ("no", 1)),
    (lambda bias: layers.Linear(3, 2, bias=bias), "bias", ("no", 1)),
    (kernels.RBF, "ard", ("no", 0)),
    (data.random_crop, "x", (IMAGES.numpy(), 3, None)),
    (data.random_flip, "x", (IMAGES.numpy(), 3, None)),
    (lambda generator: data.random_flip(IMAGES, generator), "generator", (0, "a")),
    (models.resnet18, "image_shape", (3, None)),
    (gilib.load, "path", (3, None)),
    (lambda x: gilib.record(draw(), x), "x", (3, [1.0])),
    (lambda net: recipes.bound(net, gilib.Gaussian(), X, Y), "net", (None, "x")),
    (
        lambda normalisation: gilib.predict(net(), gilib.Gaussian(), X, normalisation=normalisation),
        "normalisation",
        ("x", 3),
    ),
    (lambda pointwise: gilib.predict(net(), gilib.Gaussian(), X, pointwise=pointwise), "pointwise", ("no",)),
    (
        lambda per_point: gilib.elbo(draw(), gilib.Gaussian(), X, Y, num_data=12, per_point=per_point),
        "per_point",
        ("no",),
    ),
    (
        lambda progress: gilib.fit(net(), gilib.Gaussian(), X, Y, steps=1, progress=progress),
        "progress",
        ("no",),
    ),
]


def cases(table, error):
    return [
        pytest.param(call, name, bad, error, id=f"{name}={bad!r:.20}")
        for call, name, bads in table
        for bad in bads
    ]


@pytest.mark.parametrize(
    ("call", "name", "bad", "error"), [*cases(VALUES, ValueError), *cases(KINDS, TypeError)]
)
def test_what_is_wrong_is_named_where_it_is_given(call, name, bad, error):
    with pytest.raises(error, match=re.escape(name) + r".* must be ") as caught:
        call(**{name: bad})
    assert caught.traceback[-1].path.parent.name == "gilib"  # an error of ours, not one of torch


def test_numbers_of_numpy_and_lists_are_as_good():
    recipe = recipes.NetworkRecipe(steps=np.int64(3), lr=np.float32(0.1), hidden=[np.int32(4), 5])
    assert (recipe.steps, recipe.hidden) == (3, [4, 5])
    assert likelihoods.PerOutputGaussian(np.array([1.0, 2.0])).start == [1.0, 2.0]
    assert training.PiecewiseConstant(np.array([3]), [1.0, 0.1]).boundaries == (3,)


def test_parts_of_a_reader_are_asked_for_the_fields_of_gilib_alone():
    @dataclass(frozen=True)
    class Own(training.LinearDecay):
        slope: float = 1.0

    assert Own(slope="steep").slope == "steep"
    with pytest.raises(ValueError, match="start must be"):
        Own(start=NAN)


def test_any_of_several_annotations_is_enough():
    check_annotated(None, int | None, "a")
    check_annotated((1, 2), int | tuple[Count, ...], "a")
    with pytest.raises(ValueError, match="a must be an integer"):
        check_annotated("b", int | None, "a")


def test_a_checked_function_is_still_itself():
    assert gilib.predict.__name__ == "predict" and "num_samples" in gilib.predict.__doc__
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        checked(lambda word: word)(colour=1)
