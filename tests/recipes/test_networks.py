"""The recipe of a network: widths and nonlinearities are what its reader gives, and the bound chooses."""

import torch
from torch import nn

import gilib
from experiments.comparisons.tasks import moons
from tests.support import normals, seeded

LONG = {"hidden": (10,), "num_inducing": 30, "steps": 100, "trial": 100, "num_samples": 4}


def nonlinearity(trained):
    return type(list(trained.network.layers)[1].module)


def test_widths_and_nonlinearity_are_those_of_the_recipe():
    changes = {"hidden": (7, 6), "activations": (nn.Softplus(2.0),), "steps": 1}
    recipe = gilib.recommended("network", **changes)
    layers = list(recipe.train(normals(9, 3), normals(9, 1), progress=False).network.layers)
    assert [layer.out_features for layer in layers[::2]] == [7, 6, 1]
    assert all(layer.module.beta == 2.0 for layer in layers[1::2]) and len(layers) == 5


def test_moons_are_bent_and_products_are_smooth():
    """With GELU alone two hundred points of two moons are told apart by a straight line."""
    points, labels = moons(200, 0.2, seeded())
    found = gilib.recommended("network", **LONG).train(points.float(), labels, classes=2, progress=False)
    assert nonlinearity(found) is nn.ReLU
    x = torch.randn(200, 4, generator=seeded(1))
    y = x[:, :1].square() + x[:, 1:2] * x[:, 2:3] + 0.05 * torch.randn(200, 1, generator=seeded(2))
    assert nonlinearity(gilib.recommended("network", **LONG).train(x, y / y.std(), progress=False)) is nn.GELU


def test_a_trial_leaves_the_training_as_it_is(tmp_path):
    """What is trained is what a recipe of that nonlinearity alone trains; only it has callbacks and files."""
    x, y, called = normals(20, 2), normals(20, 1, seed=1), []
    recipe = gilib.recommended("network", hidden=(4,), steps=6, trial=3)
    options = {"progress": False, "seed": 5, "checkpoint": tmp_path / "run.pt"}
    found = recipe.train(x, y, callbacks=[lambda step, bound, net: called.append(step)], **options)
    alone = gilib.recommended("network", hidden=(4,), steps=6, activations=(nonlinearity(found),))
    again = alone.train(x, y, progress=False, seed=5)
    assert torch.equal(found.history.elbo, again.history.elbo) and len(called) == 6
    assert recipe.train(x, y, **options).history.resumed_at == 6


def test_options_of_the_training_are_those_of_the_trials(monkeypatch):
    """But for what watches it."""
    seen, fit = [], gilib.fit
    monkeypatch.setattr(
        "gilib.recipes.base.fit", lambda *given, **own: seen.append(own) or fit(*given, **own)
    )
    rule, recipe = gilib.Adam(0.01), gilib.recommended("network", hidden=(4,), trial=3)
    recipe.train(
        normals(20, 2), normals(20, 1), steps=5, rule=rule, num_samples=3, batch_size=7, progress=False
    )
    assert [(own["steps"], own["num_samples"]) for own in seen] == [(3, 2), (3, 2), (5, 3)]
    assert all(own["rule"] is rule and own["batch_size"] == 7 for own in seen)
    recipe.train(normals(20, 2), normals(20, 1), steps=5, num_samples=None, progress=False)
    assert [own["num_samples"] for own in seen[3:]] == [5, 5, None]  # as many as the rule takes


def test_replicas_have_one_nonlinearity_and_what_diverges_is_not_chosen():
    class Exploding(nn.Module):
        def forward(self, x):
            return x * torch.inf

    x, y = normals(2, 20, 2), normals(2, 20, 1, seed=1)
    recipe = gilib.recommended("network", hidden=(4,), steps=3, activations=(Exploding, nn.Tanh))
    assert nonlinearity(recipe.train(x, y, seed=[0, 1], progress=False)) is nn.Tanh
