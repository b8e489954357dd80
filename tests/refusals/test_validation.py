"""Numbers that arrive otherwise than expected: of numpy, whole, masked, half as precise, not finite."""

import math

import numpy as np
import pytest
import torch

import gilib
from gilib.posteriors.pseudo import signed_one_hot
from gilib.validation import from_numpy
from tests.support import normals, seeded, small_net
from tests.support.trainings import same

X, Y = normals(6, 2), normals(6, 2, seed=1)


def mlp():
    return gilib.models.mlp(2, (3,), 2, inducing_points=X[:4], generator=seeded())


def test_numbers_of_numpy_are_taken_everywhere(tmp_path):
    widths = np.int64(2), (np.int32(3),), np.int64(2)
    posterior, prior = gilib.LocalInducing(np.int64(4)), gilib.NealPrior(np.float32(1.5))
    net = gilib.models.mlp(*widths, posterior=posterior, prior=prior, dtype=torch.float64)
    likelihood = gilib.Gaussian(np.float32(0.25), learn=True, scale=np.int64(2))
    assert likelihood.noise_variance.item() == pytest.approx(0.25, rel=1e-12)
    assert net.draw(np.int64(3))(X).shape == (3, 6, 2)
    settings = {"steps": np.int64(2), "batch_size": np.int64(4), "num_samples": np.int64(3)}
    settings |= {"rule": gilib.Adam(np.float32(0.01)), "progress": False}
    assert gilib.fit(net, likelihood, X, Y, **settings).elbo.shape == (2,)
    assert gilib.predict(net, likelihood, X, np.int64(3), batch_size=np.int64(4)).mean.shape == (6, 2)
    gilib.save(tmp_path / "model.pt", net, likelihood)
    assert gilib.load(tmp_path / "model.pt")[0].config() == net.config()


def test_seeds_in_an_array_are_those_in_a_list():
    def bounds(seeds):
        net = small_net(gilib.GlobalInducing(), replicas=(2,))
        return gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=3, seed=seeds, progress=False).elbo

    assert torch.equal(bounds(np.array([4, 5])), bounds([4, 5]))
    with pytest.raises(TypeError, match="seed must be an integer"):
        bounds(np.array([4.0, 5.5]))


NUMBERS = {"betas": (np.float64(0.9), np.float64(0.99)), "eps": np.float64(1e-8)}


@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": np.int64(4), "rule": gilib.Adam(np.float64(0.01), **NUMBERS)},
        {"rule": gilib.Adam(0.01, schedule=gilib.training.LinearDecay())},
    ],
)
def test_a_checkpoint_with_numbers_of_numpy_can_be_read(settings, tmp_path):
    """Files are read without running code, and numbers of numpy would need some."""
    nets = [small_net(gilib.GlobalInducing()) for _ in range(2)]
    settings = {"steps": np.int64(4), "checkpoint": tmp_path / "run.pt", "progress": False} | settings
    histories = [gilib.fit(net, gilib.Gaussian(0.1), X, Y, **settings) for net in nets]
    assert [history.resumed_at for history in histories] == [0, 4]
    assert same(*nets)
    gilib.save(tmp_path / "model.pt", nets[0], gilib.Gaussian(0.1), config={"rate": np.float64(0.5)})
    assert gilib.load(tmp_path / "model.pt").config == {"rate": 0.5}


def test_arrays_of_numpy_are_taken_by_models_recipes_and_predictions():
    points = X.numpy()
    net = gilib.models.structured_gp(2, 1, inducing_points=points, mean_points=points, width=2)
    assert net.reference_tensor().dtype == torch.get_default_dtype()
    start = gilib.models.inducing_start(points, 3, "subset")
    assert torch.equal(start, gilib.models.inducing_start(torch.from_numpy(points).float(), 3, "subset"))
    for model in ("network", "gp", "heteroscedastic_gp"):
        recipe = gilib.recommended(model, steps=2)
        assert len(recipe.train(points, Y[:, :1].numpy(), seed=np.int64(3), progress=False).history.elbo) == 2
    net, noise = small_net(gilib.posteriors.Conjugate()), gilib.likelihoods.CorrelatedGaussian(2, learn=True)
    gilib.fit(net, noise, X, Y, rule=gilib.training.Bali(), steps=2, progress=False)
    for told in (gilib.predict(net, noise, X, 3), gilib.prediction.predict_student(net, X, 4)):
        assert torch.equal(told.log_prob(Y.numpy()), told.log_prob(Y))


@pytest.mark.parametrize("value", [1e-60, 1e-40, 1e300])
def test_what_float32_cannot_compute_with(value):
    """It gave NaN, by an infinite precision or frequency."""
    calls = [
        lambda: gilib.Gaussian(value),
        lambda: gilib.likelihoods.PerOutputGaussian([0.1, value]),
        lambda: gilib.likelihoods.HeteroscedasticGaussian([value]),
        lambda: gilib.likelihoods.CorrelatedGaussian(2, value),
        lambda: gilib.kernels.RBF(lengthscale=(1.0, value)),
        lambda: gilib.kernels.Matern(variance=value),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="must lie between 1e-30 and 1e30"):
            call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.complex64])
def test_a_network_is_built_in_single_or_double_precision(dtype):
    with pytest.raises(ValueError, match=rf"must be in torch.float32 or torch.float64, got {dtype}"):
        gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised(), dtype=dtype)


@pytest.mark.parametrize("posterior", [gilib.GlobalInducing(), gilib.Factorised()])
def test_a_network_made_half_as_precise_is_not_drawn(posterior):
    net = small_net(posterior).half()
    with pytest.raises(ValueError, match=r"torch.float32 or torch.float64, got torch.float16.*\.float\(\)"):
        net.draw()
    with pytest.raises(ValueError, match="got torch.float16"):
        net.draw(noise=normals(3, net.noise_size).half())
    assert net.float().draw()(X.float()).shape == (1, 6, 2)


def test_masked_arrays():
    """Below a mask anything may stand, such as -9999."""
    hidden = np.ma.masked_array([[1.0], [2.0], [-9999.0]], mask=[[0], [0], [1]])
    with pytest.raises(ValueError, match="an array holds 1 masked entries: fill them in, or leave"):
        from_numpy(hidden)
    shown = np.ma.masked_array([[1.0], [2.0]], mask=False)
    assert torch.equal(from_numpy(shown), torch.tensor([[1.0], [2.0]]))


@pytest.mark.parametrize("dtype", [np.longdouble, np.int64, np.uint8, ">f8"])
def test_numbers_of_numpy_of_any_kind(dtype):
    """Those beyond float64, which torch does not know, and whole ones, are the network's."""
    x = np.arange(12).reshape(6, 2).astype(dtype)
    net, same = mlp(), torch.arange(12).reshape(6, 2).to(X)
    draw, noise = net.draw(3), gilib.Gaussian(0.1)
    assert torch.equal(draw(x), draw(same))
    gilib.fit(net, noise, x, Y, steps=1, progress=False)
    units = gilib.data.Normalisation.fit(same, Y)
    recipe = gilib.recommended("gp", steps=2)
    calls = (
        lambda own: gilib.predict(net, noise, own, 3, generator=seeded()).mean,
        lambda own: gilib.predict(net, noise, own, 3, normalisation=units, generator=seeded()).mean,
        lambda own: gilib.elbo(draw, noise, own, Y, num_data=6),
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
    net = mlp()
    calls = (
        lambda: gilib.fit(net, gilib.Gaussian(0.1), x, Y, steps=1, progress=False),
        lambda: gilib.predict(net, gilib.Gaussian(0.1), x),
        lambda: net.draw(2)(x),
        lambda: gilib.models.mlp(2, (3,), 1, inducing_points=x),
    )
    for call in calls:
        with pytest.raises(TypeError, match=f"is a {kind} tensor, and dense ones are taken"):
            call()


@pytest.mark.parametrize("weight", [math.nan, -1.0])
def test_a_weight_of_the_divergence_that_is_none(weight):
    net = mlp()
    draw = net.draw(2)
    with pytest.raises(ValueError, match=f"kl_weight must be a finite number of at least 0, got {weight}"):
        gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=len(X), kl_weight=weight)
    settings = {"steps": 3, "kl_weight": lambda s: weight if s == 2 else 1.0, "progress": False}
    with pytest.raises(ValueError, match=f"numbers of at least 0, got {weight} at step 2"):
        gilib.fit(net, gilib.Gaussian(0.1), X, Y, **settings)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool", "uint64"])
def test_labels_of_any_integer_dtype(dtype):
    whole, nets, likelihood = torch.arange(6) % 2, [mlp(), mlp()], gilib.Categorical()
    labels = torch.from_numpy(whole.numpy().astype(dtype))
    settings = {"steps": 2, "batch_size": 4, "progress": False}
    given, wanted = (
        gilib.fit(net, likelihood, X, y, **settings).elbo
        for net, y in zip(nets, (labels, whole), strict=True)
    )
    assert torch.equal(given, wanted)
    told = gilib.predict(nets[0], likelihood, X, 3)
    assert torch.equal(told.log_prob(labels), told.log_prob(whole))
    assert torch.equal(signed_one_hot(labels, 2), signed_one_hot(whole, 2))
