"""The recipe of a Gaussian process: exact for few data, the kernel by its evidence; noise that varies."""

import math

import pytest
import torch

import gilib
from gilib.kernels import RBF, DotProduct, Matern, Periodic, RationalQuadratic, White, spectral_mixture
from gilib.kernels.modules import kernels_with_prior
from gilib.layers import Concat
from gilib.linalg import FactorisationError
from gilib.posteriors.base import BuildContext
from tests.support import D, assert_equal, normals, seeded

X = normals(60, 2, seed=1)
SMOOTH = torch.sin(2 * X).sum(1, keepdim=True)
Y = SMOOTH + 0.1 * normals(60, 1, seed=2)


def train(x=X, y=Y, **changes):
    return gilib.recommended("gp", steps=60, **changes).train(x, y, progress=False)


def kernel(trained):
    return next(iter(trained.network.layers)).kernel


def points(trained):
    return next(iter(trained.network.layers)).inducing_inputs.detach()


def bound(trained, x=X, y=Y, **settings):
    return gilib.recipes.bound(trained.network, trained.likelihood, x, y, **settings)


def test_few_data_are_all_inducing_points():
    one = {"kernels": (RBF(),), "num_inducing": 20}
    exact, sparse = train(**one, num_exact=60), train(**one, num_exact=59)
    assert torch.equal(points(exact), X)
    assert points(sparse).shape == (20, 2) and (torch.cdist(points(sparse), X).amin(1) == 0).all()
    assert bound(exact) > bound(sparse)
    alone = gilib.recommended("gp", steps=3, num_inducing=1, num_exact=1).train(X, Y, progress=False)
    assert points(alone).shape == (1, 2)


def test_single_precision_data_are_trained_in_double():
    kernels = (RBF(),)
    ours, double = train(X.float(), Y.float(), kernels=kernels), train(kernels=kernels)
    assert ours.network.layers.reference_tensor().dtype is D
    assert_equal(*(bound(own, X.float(), Y.float()) for own in (ours, double)), 1e-3)


def test_classes_are_searched_as_numbers_are():
    """With all points as inducing points to a higher bound than by Adam, which trains several seeds."""
    labels = (SMOOTH[:, 0] > 0).long()
    recipe = gilib.recommended("gp")
    trained = recipe.train(X.float(), labels, classes=2, progress=False)
    assert trained.network.output_shape == (2,) and recipe.enough(9, 2) == 9 and recipe.enough(9) == 1
    assert trained.network.layers.reference_tensor().dtype is D and trained.history.converged
    both = recipe.train(X, labels, classes=2, seed=[0, 1], progress=False, steps=100)
    found, by_adam = (bound(own, y=labels, generator=seeded()) for own in (trained, both))
    assert both.history.elbo.shape == (100, 2) and (found > by_adam).all()


@pytest.mark.parametrize(("classes", "most"), [(3, 110), (4, 100), (10, 100), (11, 110)])
def test_classes_by_adam_have_few_inducing_points(classes, most, recwarn):
    x, labels = normals(120, 2), torch.arange(120) % classes
    recipe = gilib.recommended("gp", steps=1, num_inducing=110)
    assert len(points(recipe.train(x, labels, classes=classes, progress=False))) == most
    told = [str(each.message) for each in recwarn if "num_inducing=110" in str(each.message)]
    assert len(told) == (most == 100) and all("has 100 at most" in each for each in told)


def test_lengthscales_are_in_units_of_the_diagonal():
    net, _ = gilib.recommended("gp", kernels=(RBF(lengthscale=2.0),)).build(X, Y)
    start = next(iter(net.layers)).hyperparameters.log["lengthscale"].exp()
    assert_equal(start.detach(), torch.full((2,), 2.0 * 2.0**0.5, dtype=D), 1e-12)


def test_a_kernel_that_cannot_be_factorised_is_left_out():
    """Distances of 10⁴ lengthscales cancel: with them alone the training ends, beside another it goes on."""
    steps = torch.arange(60).remainder(4).to(D)[:, None]
    x, broken = torch.cat([steps, X[:, :1]], 1), RBF(lengthscale=(1e-5, 100.0))
    with pytest.raises(FactorisationError, match="kernel matrix"):
        gilib.recommended("gp", steps=1, kernels=(broken,)).train(x, Y, progress=False)
    found = gilib.recommended("gp", steps=1, kernels=(broken, Matern())).train(x, Y, progress=False)
    assert isinstance(kernel(found), Matern)


def test_the_kernel_is_the_best_after_training_not_before():
    """And a climb begins where another ended, in kernel and noise."""
    slow, quick = RBF(lengthscale=0.2), Matern(smoothness=0.5)
    recipes = [gilib.recommended("gp", steps=100, kernels=(own,)) for own in (slow, quick)]
    first, other = (recipe.climb(X, Y, slice(None), progress=False) for recipe in recipes)
    a, b = first.history.elbo, other.history.elbo
    assert a[0] < b[0] and a[-1] > b[-1]
    assert type(kernel(train(kernels=(quick, slow)))) is RBF
    again = recipes[0].climb(X, Y, slice(None), first, progress=False, steps=1)
    assert_equal(again.history.elbo[0], a[-1], 1e-6)


def test_kernels_are_compared_where_targets_vary():
    """Nearly all targets of an output are the same: a choice of rows may miss the other one."""
    x, y = normals(300, 2, seed=5), torch.zeros(300, 2, dtype=D)
    y[0, 0], y[:, 1] = 1.0, x[:, 0].sin()
    recipe = gilib.recommended("gp", steps=2, num_inducing=20, num_exact=100)
    for seed in range(2):
        assert len(recipe.train(x, y, seed=seed, progress=False).history.elbo) == 2


def test_intervals_cover_where_columns_are_as_many_as_rows():
    x, y = normals(360, 60, seed=3), normals(360, 1, seed=4)
    y = x[:, :1] - 2 * x[:, 1:2] + 0.5 * y  # without the prior 0.51 are covered
    net, likelihood, _ = gilib.recommended("gp", steps=60).train(x[:60], y[:60], progress=False)
    found = gilib.predict(net, likelihood, x[60:], 1)
    inside = (found.quantile(0.05) < y[60:]) & (y[60:] < found.quantile(0.95))
    assert inside.double().mean() > 0.8


def test_the_prior_is_that_of_logarithms_around_an_unknown_one():
    """Jointly normal: each has a variance of its own; next to nothing is known of what they share."""
    lengths, sd = (1.0, 3.0, 5.0), 0.5
    own = RBF(lengths, log_lengthscale_sd=sd).build(3, BuildContext(dtype=D))
    covariance = sd**2 * torch.eye(3, dtype=D) + 1e6
    normal = torch.distributions.MultivariateNormal(torch.zeros(3, dtype=D), covariance)
    wanted = normal.log_prob(torch.tensor(lengths, dtype=D).log()) - normal.log_prob(normal.mean)
    assert_equal(own.log_prior().detach(), wanted, 1e-5)


def test_the_prior_is_part_of_what_is_climbed():
    y = torch.sin(2 * X[:, :1]) + 0.1 * normals(60, 1, seed=2)  # of one column
    free, tight = (train(y=y, kernels=(RBF(log_lengthscale_sd=sd),)) for sd in (None, 1e-3))
    (own,) = kernels_with_prior(tight.network)
    assert float(own.log["lengthscale"].detach().diff().abs()) < 0.01
    assert bound(free, y=y) > bound(tight, y=y) + 0.01


def test_adam_climbs_the_prior_too():
    recipe = gilib.recommended("gp", num_inducing=10, steps=80, kernels=(RBF(log_lengthscale_sd=1e-2),))
    both = recipe.train(X, Y, seed=[0, 1], progress=False)
    (own,) = kernels_with_prior(both.network)
    assert own.log_prior().shape == (2,)
    assert float(own.log["lengthscale"].detach().diff().abs().max()) < 0.05


COMBINED = {
    "sum": RBF().on(0) + DotProduct(0.5) + Periodic(period=3.0).on(1) * RBF(),
    "spectral mixture": spectral_mixture([3.0, 2.0], [2.0, 3.0], [0.5, 0.5]),
    "rational quadratic": RationalQuadratic(log_lengthscale_sd=0.5),
}


@pytest.mark.parametrize("name", COMBINED)
def test_kernels_of_every_kind_are_searched(name):
    """With more evidence than at the start; a lengthscale is scaled and started twice where it is alone."""
    recipe = gilib.recommended("gp", kernels=(COMBINED[name],))
    found = recipe.train(X, Y, progress=False)
    net, likelihood = recipe.build(X, Y)
    start = gilib.training.solve_posterior(net.double(), likelihood.double(), X, Y) / len(X)
    assert float(bound(found)) > 0.1 + float(start)
    same = next(iter(net.layers)).kernel == COMBINED[name]
    assert same is (name != "rational quadratic")


@pytest.mark.parametrize("kernels", [(COMBINED["sum"],), (RBF(), COMBINED["sum"])], ids=["alone", "of two"])
def test_the_evidence_of_a_combination_is_that_of_its_gram(kernels):
    found = train(kernels=kernels)
    layer, noise = next(iter(found.network.layers)), float(found.likelihood.noise_variance.detach())
    covariance = layer.hyperparameters().gram(X).detach() + noise * torch.eye(60, dtype=D)
    dist = torch.distributions.MultivariateNormal(torch.zeros(60, dtype=D), covariance)
    assert float(found.history.elbo[-1]) * 60 == pytest.approx(float(dist.log_prob(Y[:, 0])), abs=0.05)


def test_combinations_of_classes_and_replicas():
    recipe = gilib.recommended("gp", num_inducing=20, steps=2, kernels=(COMBINED["sum"] + White(1e-3),))
    trained = recipe.train(X.float(), (SMOOTH[:, 0] > 0).long(), classes=2, progress=False)
    assert trained.network.output_shape == (2,)
    assert recipe.train(X, Y, seed=[0, 1], progress=False).history.elbo.shape == (2, 2)


@pytest.mark.parametrize(("sd", "slope"), [(0.5, -1.0), (None, 0.0)])
def test_where_lengthscales_have_a_prior_noise_is_flat_by_its_deviation(sd, slope):
    """So where the search ends the evidence falls by a nat for each unit that log σ rises."""
    found = train(kernels=(RBF(log_lengthscale_sd=sd),))
    variance, step = float(found.likelihood.noise_variance.detach()), 0.01
    noises = [gilib.Gaussian(variance * math.exp(2 * change)) for change in (-step, step)]
    less, more = (float(gilib.training.solve_posterior(found.network, own, X, Y)) for own in noises)
    assert (more - less) / (2 * step) == pytest.approx(slope, abs=0.05)


def test_a_short_wave_is_found():
    x = torch.linspace(0, 1, 150, dtype=D)[:, None]
    y = torch.sin(40 * math.pi * x) + 0.3 * normals(150, 1, seed=5)
    scales = gilib.data.Normalisation.fit(x, y)
    _, likelihood, _ = train(scales.x(x), scales.y(y))
    noise = likelihood.noise_variance.detach().sqrt() * scales.y_std
    assert 0.2 < float(noise) < 0.4  # from a long lengthscale alone all is noise, or none


INPUTS = normals(100, 2, seed=1)
MEAN = torch.sin(INPUTS).sum(1, keepdim=True)
NOISE = 0.3 * INPUTS[:, :1].exp()
TARGETS = MEAN + NOISE * normals(100, 1, seed=2)

SHORT = {"steps": 30, "num_inducing": 40}
GP = gilib.recommended("gp", **SHORT)
RECIPES = {"gp": GP, "heteroscedastic_gp": gilib.recommended("heteroscedastic_gp", mean=GP, **SHORT)}


def train_one(model, y=TARGETS):
    trained = RECIPES[model].train(INPUTS, y, progress=False)
    return trained, float(gilib.recipes.bound(trained.network, trained.likelihood, INPUTS, y))


@pytest.fixture(scope="module")
def found():
    return train_one("heteroscedastic_gp")


def test_it_finds_the_noise(found):
    net, likelihood, _ = found[0]
    noise = likelihood.target_moments(net.estimate(1, 100).moments(INPUTS).mean).variance[0].detach().sqrt()
    ratio = (noise / NOISE).log()
    assert ratio.abs().mean() < 0.3 and (noise / noise.mean()).log().abs().mean() > 0.5


def test_the_bound_says_whether_noise_varies(found):
    assert found[1] > train_one("gp")[1] + 0.1
    level = MEAN + 0.3 * normals(100, 1, seed=2)
    assert abs(train_one("heteroscedastic_gp", level)[1] - train_one("gp", level)[1]) < 0.02


def test_predictions_need_one_draw(found):
    net, likelihood, _ = found[0]
    one, many = (gilib.predict(net, likelihood, INPUTS[:5], s) for s in (1, 3))
    torch.testing.assert_close(one.sd, many.sd)
    assert gilib.recommended("heteroscedastic_gp").enough(100) == 1


def test_what_it_is_made_of():
    recipe = gilib.recommended("heteroscedastic_gp", num_inducing=20, steps=3)
    net, likelihood = recipe.build(INPUTS, TARGETS)
    (both,) = net.layers
    assert isinstance(both, Concat) and net.output_shape == (2,)
    assert likelihood.log_variance.shape == (1,)
    trained = recipe.train(INPUTS.float(), torch.cat([TARGETS, -TARGETS], 1).float(), progress=False)
    mean, noise = next(iter(trained.network.layers))
    assert torch.equal(mean.inducing_inputs.detach(), INPUTS.float().double())
    assert noise.inducing_inputs.shape == (20, 2) and noise.inducing_inputs.dtype is D
    assert trained.network.output_shape == (4,)


def test_what_noise_that_varies_refuses():
    recipe = gilib.recommended("heteroscedastic_gp", steps=1)
    with pytest.raises(ValueError, match="is for regression, because classes have no noise"):
        recipe.train(INPUTS, (TARGETS[:, 0] > 0).long(), classes=2)
    with pytest.raises(ValueError, match="one model at a time"):
        recipe.train(INPUTS, TARGETS, seed=[0, 1])


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
