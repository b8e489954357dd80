"""Recipes build what they say, from the rows they choose; that of a network chooses its nonlinearity."""

import inspect

import pytest
import torch
from torch import nn

import gilib
from experiments.comparisons.tasks import moons
from gilib.training import LinearDecay
from tests.support import D, normals, seeded
from tests.support.oracles import assert_mean_within

X, Y = normals(30, 3, seed=1), normals(30, 2, seed=2)
LABELS = torch.arange(30) % 3


def test_the_recommendation():
    recipe = gilib.recommended("network")
    assert (recipe.hidden, recipe.num_inducing, recipe.steps, recipe.num_samples) == ((50,), 200, 1000, 10)
    assert recipe.rule() == gilib.Adam(0.05, schedule=LinearDecay(0.5))
    net, likelihood = recipe.build(X, Y)
    assert recipe.activations == (nn.ReLU, nn.GELU) and isinstance(list(net.layers)[1].module, nn.ReLU)
    weights = [layer for layer in net.layers if isinstance(layer, gilib.Linear)]
    assert [layer.posterior for layer in weights] == [gilib.Factorised(), gilib.GlobalInducing()]
    assert all(layer.prior == gilib.NealPrior(learn=True) for layer in weights)
    assert likelihood.noise_variance.tolist() == pytest.approx([0.05, 0.05]) and likelihood.learn
    assert type(recipe.build(X, Y[:, :1])[1]) is gilib.Gaussian


def test_without_a_name_size_and_kind_choose():
    many, labels = torch.zeros(1001, 1), torch.zeros(5, dtype=torch.long)
    recipe, noise = gilib.recommended(), gilib.likelihoods.HeteroscedasticGaussian
    assert isinstance(recipe.build(many[:1000], many[:1000])[1], noise)
    assert type(recipe.build(many, many)[1]) is gilib.Gaussian
    assert isinstance(recipe.build(X[:5], labels, classes=2)[1], gilib.Categorical)
    assert recipe.build(X, Y, seed=[0, 1])[0].replicas == (2,)
    assert not recipe.train(X[:9], Y[:9], steps=1, progress=False).network.replicas


def test_the_defaults_of_the_library_are_the_recommendation():
    """Of `gilib.fit`, but for its five draws, and of a network without a posterior, whose ReLU stays."""
    recipe, given = gilib.recommended("network"), inspect.signature(gilib.fit).parameters
    assert given["rule"].default == recipe.rule() and given["steps"].default == recipe.steps
    points = {"inducing_points": X[:5]}
    plain = gilib.models.mlp(3, recipe.hidden, 2, **points)
    (recommended, _), kept = recipe.build(X, Y), {"inducing_points", "input_shape", "replicas"}
    ours, theirs = ({k: v for k, v in net.config().items() if k not in kept} for net in (plain, recommended))
    assert ours == theirs
    for posterior in (gilib.PointEstimate(), gilib.GlobalInducing()):
        chosen = gilib.models.mlp(3, (25,), 2, posterior=posterior, **points)
        assert all(layer.prior == gilib.NealPrior() for layer in chosen.layers if layer.has_weights)


def test_inducing_points_are_rows_and_pseudo_outputs_their_targets():
    net, _ = gilib.recommended("network", num_inducing=7).build(X, Y, seed=4)
    (rows,) = zip(
        *((X == point).all(1).nonzero().flatten().tolist() for point in net.inducing_points), strict=True
    )
    assert len(set(rows)) == 7
    last = list(net.layers)[-1]
    assert torch.equal(last.weights.pseudo.outputs.detach(), Y[list(rows)])


def test_labels_become_two_or_minus_two_unless_told_otherwise():
    assert gilib.recommended("network").label_scale == 2.0
    net, likelihood = gilib.recommended("network", label_scale=3.0).build(X, LABELS, classes=3)
    assert isinstance(likelihood, gilib.Categorical) and net.output_shape == (3,)
    outputs = list(net.layers)[-1].weights.pseudo.outputs.detach()
    assert outputs.unique().tolist() == [-3.0, 3.0] and (outputs.sum(1) == -3.0).all()


@pytest.mark.parametrize("model", ["network", "gp"])
def test_replicas_start_as_networks_of_their_own(model):
    """Replica r has the rows that a recipe with its seed alone chooses."""
    recipe = gilib.recommended(model, num_inducing=5)
    net, likelihood = recipe.build(X, Y, seed=[3, 8])
    assert net.replicas == likelihood.replicas == (2,)
    for r, seed in enumerate((3, 8)):
        alone, _ = recipe.build(X, Y, seed=seed)
        names = [name for name, _ in alone.named_parameters() if "inducing" in name]
        assert names
        for name in names:
            assert torch.equal(net.get_parameter(name)[r], alone.get_parameter(name))


def test_the_bound_is_the_elbo_of_all_data_at_once():
    """In batches as at once, on average; exactly so if the batch is everything and the draws the same."""
    net, likelihood = gilib.recommended("network", num_inducing=5).build(X, Y)
    net = net.double()
    whole = gilib.recipes.bound(net, likelihood, X, Y, num_samples=9, generator=seeded(5))
    expected = gilib.elbo(net.draw(9, generator=seeded(5)), likelihood, X, Y, num_data=30, per_point=True)
    torch.testing.assert_close(whole, expected.detach())

    def parts(s):
        return gilib.recipes.bound(net, likelihood, X, Y, num_samples=3, batch_size=7, generator=seeded(s))

    many = gilib.recipes.bound(net, likelihood, X, Y, num_samples=4000, generator=seeded(6))
    assert_mean_within(torch.stack([parts(s) for s in range(40)]), many)


def test_the_bound_of_a_process_is_that_of_its_estimates():
    net, likelihood = gilib.recommended("gp", num_inducing=5).build(X, Y)
    found = gilib.recipes.bound(net, likelihood, X, Y, num_samples=1, batch_size=7)
    exact = gilib.elbo(net.estimate(1, 30), likelihood, X, Y, num_data=30, per_point=True)
    torch.testing.assert_close(found, exact.detach())  # closed form: no draw enters


def test_what_is_refused():
    with pytest.raises(ValueError, match="unknown model 'forest': choose one of 'network', 'gp', 'heterosc"):
        gilib.recommended("forest")
    with pytest.raises(TypeError, match="steps of which recipe"):
        gilib.recommended(steps=3)
    with pytest.raises(TypeError, match="the recipe of a 'gp' has no 'hidden': it has steps, lr"):
        gilib.recommended("gp", hidden=(5,))
    recipe = gilib.recommended("network", activations=())
    with pytest.raises(ValueError, match="class labels must lie in 0 ... 1, got 0 ... 2"):
        recipe.build(X, LABELS, classes=2)
    with pytest.raises(ValueError, match="y has dtype torch.float32"):
        recipe.build(X, Y.float())
    with pytest.raises(ValueError, match=r"x must be a table \[N, D\], got \[10, 1, 12, 12\]"):
        recipe.train(torch.ones(10, 1, 12, 12), LABELS[:10], classes=3)
    with pytest.raises(ValueError, match="no nonlinearity to choose from: activations is empty"):
        recipe.train(X, Y)
    with pytest.raises(TypeError, match=r"\['lr'\] belong to the recipe: recommended\(..., lr=...\)"):
        recipe.train(X, Y, lr=0.1)
    for y in (LABELS, Y[:, 0]):
        for call in (recipe.train, recipe.build):
            with pytest.raises(ValueError, match=r"got torch.\w+ of shape \[30\]: write y\[:, None\]"):
                call(X, y)


def test_sizes_of_the_recommendation(monkeypatch):
    """What docstrings and chapters say; batches are of all data where these are fewer."""
    process, seen = gilib.recommended("gp"), []
    assert (process.num_exact, process.num_inducing) == (1500, 500)
    monkeypatch.setattr("gilib.recipes.base.fit", lambda *given, **own: seen.append(own))
    for points in (30, 450):
        x = normals(points, 2)
        gilib.recommended("deep_gp", num_inducing=5).train(x, x, progress=False)
    assert [own["batch_size"] for own in seen] == [30, 400]


def test_each_replica_may_have_data_of_its_own():
    recipe = gilib.recommended("deep_gp", num_inducing=5, steps=2)
    trained = recipe.train(torch.stack([X, X + 9]), torch.stack([Y, Y]), seed=[0, 1], progress=False)
    points = trained.network.inducing_points.detach()
    assert trained.history.elbo.shape == (2, 2) and (points[1] - points[0]).min() > 1.0
    assert repr(trained).startswith("Trained(network of [3] to [2], PerOutputGaussian, History(2 steps, ")


def test_the_bound_of_images():
    """At once, and in batches on average; of a posterior with a divergence, which is that of ten images."""
    images, labels = normals(10, 1, 12, 12), torch.arange(10) % 3
    net = gilib.models.lenet((1, 12, 12), 3, channels=2, inducing_points=images[:4], dtype=D)
    settings = {"num_samples": 20, "generator": seeded(1)}
    found = gilib.recipes.bound(net, gilib.Categorical(), images, labels, **settings)
    draw = net.draw(20, generator=seeded(1))
    expected = gilib.elbo(draw, gilib.Categorical(), images, labels, num_data=10, per_point=True).detach()
    assert float(draw.log_pq.mean().abs()) > 1.0
    torch.testing.assert_close(found, expected)
    model, few = (net, gilib.Categorical(), images, labels), {"num_samples": 5, "batch_size": 4}
    parts = [gilib.recipes.bound(*model, **few, generator=seeded(s)) for s in range(20)]
    assert_mean_within(torch.stack(parts), gilib.recipes.bound(*model, num_samples=1000, generator=seeded()))


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
    monkeypatch.setattr("gilib.recipes.base.fit", lambda *its, **own: seen.append(own) or fit(*its, **own))
    rule, recipe = gilib.Adam(0.01), gilib.recommended("network", hidden=(4,), trial=3)
    data, options = (normals(20, 2), normals(20, 1)), {"steps": 5, "progress": False}
    recipe.train(*data, **options, rule=rule, num_samples=3, batch_size=7)
    assert [(own["steps"], own["num_samples"]) for own in seen] == [(3, 2), (3, 2), (5, 3)]
    assert all(own["rule"] is rule and own["batch_size"] == 7 for own in seen)
    recipe.train(*data, **options, num_samples=None, rule=gilib.training.VOGN())
    assert [own["num_samples"] for own in seen[3:]] == [5, 5, None]  # as many as the rule takes


def test_replicas_have_one_nonlinearity_and_what_diverges_is_not_chosen():
    class Exploding(nn.Module):
        def forward(self, x):
            return x * torch.inf

    x, y = normals(2, 20, 2), normals(2, 20, 1, seed=1)
    recipe = gilib.recommended("network", hidden=(4,), steps=3, activations=(Exploding, nn.Tanh))
    assert nonlinearity(recipe.train(x, y, seed=[0, 1], progress=False)) is nn.Tanh
