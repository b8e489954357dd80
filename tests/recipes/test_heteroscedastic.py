"""The recipe for noise that varies: it finds a known noise, and the bound says whether there is one."""

import pytest
import torch

import gilib
from gilib.layers import Concat
from tests.support import D, normals

X = normals(100, 2, seed=1)
SMOOTH = torch.sin(X).sum(1, keepdim=True)
NOISE = 0.3 * X[:, :1].exp()
Y = SMOOTH + NOISE * normals(100, 1, seed=2)


SHORT = {"steps": 30, "num_inducing": 40}
GP = gilib.recommended("gp", **SHORT)
RECIPES = {"gp": GP, "heteroscedastic_gp": gilib.recommended("heteroscedastic_gp", mean=GP, **SHORT)}


def train(model, y=Y):
    trained = RECIPES[model].train(X, y, progress=False)
    return trained, float(gilib.recipes.bound(trained.network, trained.likelihood, X, y))


@pytest.fixture(scope="module")
def found():
    return train("heteroscedastic_gp")


def test_it_finds_the_noise(found):
    net, likelihood, _ = found[0]
    noise = likelihood.target_moments(net.estimate(1, 100).moments(X).mean).variance[0].detach().sqrt()
    ratio = (noise / NOISE).log()
    assert ratio.abs().mean() < 0.3 and (noise / noise.mean()).log().abs().mean() > 0.5


def test_the_bound_says_whether_noise_varies(found):
    assert found[1] > train("gp")[1] + 0.1
    level = SMOOTH + 0.3 * normals(100, 1, seed=2)
    assert abs(train("heteroscedastic_gp", level)[1] - train("gp", level)[1]) < 0.02


def test_predictions_need_one_draw(found):
    net, likelihood, _ = found[0]
    one, many = (gilib.predict(net, likelihood, X[:5], s) for s in (1, 3))
    torch.testing.assert_close(one.sd, many.sd)
    assert gilib.recommended("heteroscedastic_gp").enough(100) == 1


def test_what_it_is_made_of():
    recipe = gilib.recommended("heteroscedastic_gp", num_inducing=20, steps=3)
    net, likelihood = recipe.build(X, Y)
    (both,) = net.layers
    assert isinstance(both, Concat) and net.output_shape == (2,)
    assert likelihood.log_variance.shape == (1,)
    trained = recipe.train(X.float(), torch.cat([Y, -Y], 1).float(), progress=False)
    mean, noise = next(iter(trained.network.layers))
    assert torch.equal(mean.inducing_inputs.detach(), X.float().double())
    assert noise.inducing_inputs.shape == (20, 2) and noise.inducing_inputs.dtype is D
    assert trained.network.output_shape == (4,)


def test_what_is_refused():
    recipe = gilib.recommended("heteroscedastic_gp", steps=1)
    with pytest.raises(ValueError, match="is for regression, because classes have no noise"):
        recipe.train(X, (Y[:, 0] > 0).long(), classes=2)
    with pytest.raises(ValueError, match="one model at a time"):
        recipe.train(X, Y, seed=[0, 1])


def test_noise_that_varies_is_not_taken_for_level_noise():
    """With as many columns as fit everything; a search that leaves the noise level ends at -1.2."""
    source = torch.Generator().manual_seed(2)
    x = torch.randn(80, 6, generator=source, dtype=D)
    noise = 0.7 * x[:, :1].exp() * torch.randn(80, 1, generator=source, dtype=D)
    y = x[:, :1] + 0.5 * x[:, 1:2] + noise
    y = (y - y.mean()) / y.std()
    trained = gilib.recommended("heteroscedastic_gp", steps=30).train(x, y, progress=False)
    bound = float(gilib.recipes.bound(trained.network, trained.likelihood, x, y))
    assert bound > -0.8
