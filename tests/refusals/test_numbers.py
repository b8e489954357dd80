"""Numbers that arrive otherwise than expected: of numpy, integers, too few of them, not finite."""

import math

import numpy as np
import pytest
import torch

import gilib
from tests.support import normals, seeded

X, Y = normals(12, 2, seed=1), normals(12, 1, seed=2)


@pytest.mark.parametrize("kernel", [gilib.kernels.RBF, gilib.kernels.Matern])
def test_a_lengthscale_of_numpy(kernel):
    assert kernel(lengthscale=np.float64(2.0)) == kernel(lengthscale=2.0)
    with pytest.raises(TypeError, match="a tuple with one for each input"):
        kernel(lengthscale=())


@pytest.mark.parametrize(
    "recipe", [gilib.recommended("network"), gilib.recommended("gp")], ids=["network", "gp"]
)
def test_a_recipe_wants_a_target_for_every_point(recipe):
    with pytest.raises(ValueError, match="x holds 12 points and y 5"):
        recipe.train(X, Y[:5], progress=False)
    with pytest.raises(TypeError, match=r"x must hold floating-point numbers, got torch.int64"):
        recipe.train(X.long(), Y, progress=False)


@pytest.mark.parametrize("dtype", [np.longdouble, np.int64, np.uint8, ">f8"])
def test_numbers_of_numpy_of_any_kind(dtype):
    """Those beyond float64, which torch does not know, and whole ones, are the network's."""
    x = np.arange(24).reshape(12, 2).astype(dtype)
    net, same = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4]), torch.arange(24).reshape(12, 2).to(X)
    draw, noise = net.draw(3), gilib.Gaussian(0.1)
    assert torch.equal(draw(x), draw(same))
    gilib.fit(net, noise, x, Y, steps=1, progress=False)
    units = gilib.data.Normalisation.fit(same, Y)
    recipe = gilib.recommended("gp", steps=2)
    calls = (
        lambda own: gilib.predict(net, noise, own, 3, generator=seeded()).mean,
        lambda own: gilib.predict(net, noise, own, 3, normalisation=units, generator=seeded()).mean,
        lambda own: gilib.elbo(draw, noise, own, Y, num_data=12),
        lambda own: gilib.iwbo(draw, noise, own, Y),
        lambda own: recipe.train(own, Y, progress=False).history.elbo,
        lambda own: gilib.recipes.bound(net, noise, own, Y, generator=seeded()),
    )
    for call in calls:
        assert torch.equal(call(x), call(same))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("kind", ["sparse", "nested"])
def test_tensors_that_are_not_dense(kind):
    x = X.to_sparse() if kind == "sparse" else torch.nested.nested_tensor([X[:3], X[3:]])
    net = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4])
    calls = (
        lambda: gilib.fit(net, gilib.Gaussian(0.1), x, Y, steps=1, progress=False),
        lambda: gilib.predict(net, gilib.Gaussian(0.1), x),
        lambda: net.draw(2)(x),
        lambda: gilib.models.mlp(2, (3,), 1, inducing_points=x),
    )
    for call in calls:
        with pytest.raises(TypeError, match=f"is a {kind} tensor, and dense ones are taken"):
            call()


def test_seeds_of_too_many_bits():
    net = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4], replicas=(2,))
    for seed in (2**63, [0, 2**70]):
        with pytest.raises(ValueError, match="seed must have at most 63 bits, got"):
            gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=1, seed=seed, progress=False)


def test_a_folder_is_no_file(tmp_path):
    net, noise = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4]), gilib.Gaussian(0.1)
    with pytest.raises(IsADirectoryError, match="is a folder: give the path of a file"):
        gilib.save(tmp_path, net, noise)
    assert not list(tmp_path.parent.glob(".*.new"))


def test_images_in_classes_of_one_and_as_targets():
    """Softmax of one output is 1; outputs that are images are no targets of a likelihood."""
    net = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4])
    labels = torch.zeros(12, dtype=torch.long)
    with pytest.raises(ValueError, match="an output for each, at least two: this network has one"):
        gilib.fit(net, gilib.Categorical(), X, labels, steps=1, progress=False)
    images = normals(6, 2, 7, 5)
    net = gilib.Network(images[:4], [gilib.Conv2d(2, 3, 3)], input_shape=(2, 7, 5))
    cases = (gilib.Gaussian(0.1), normals(6, 3, 7, 5)), (gilib.Categorical(), labels[:6])
    for likelihood, targets in cases:
        with pytest.raises(ValueError, match=r"at one point the network gives \[3, 7, 5\]: end it with"):
            gilib.fit(net, likelihood, images, targets, steps=1, progress=False)


@pytest.mark.parametrize("weight", [math.nan, -1.0])
def test_a_weight_of_the_divergence_that_is_none(weight):
    net = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4])
    draw = net.draw(2)
    with pytest.raises(ValueError, match=f"kl_weight must be a finite number of at least 0, got {weight}"):
        gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=len(X), kl_weight=weight)
    settings = {"steps": 3, "kl_weight": lambda s: weight if s == 2 else 1.0, "progress": False}
    with pytest.raises(ValueError, match=f"numbers of at least 0, got {weight} at step 2"):
        gilib.fit(net, gilib.Gaussian(0.1), X, Y, **settings)
