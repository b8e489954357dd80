"""Every mistake that a user can make with the public face; numbers that arrive otherwise than expected.

Each entry is a call, the error it raises, and words that its message must hold: what was wanted, what came.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import gilib
from gilib import models
from gilib.data import Dataset, Normalisation
from gilib.likelihoods import PerOutputGaussian
from gilib.posteriors.pseudo import signed_one_hot
from gilib.validation import from_numpy
from tests.support import normals, refusals, seeded, small_net
from tests.support.trainings import same

X, Y, LABELS = normals(6, 2), normals(6, 2, seed=1), torch.arange(6) % 2
NAN = X.clone().index_fill_(0, torch.tensor([3]), math.nan)
INFINITE = Y.clone().index_fill_(1, torch.tensor([0]), math.inf)
GAUSSIAN, CATEGORICAL = gilib.Gaussian(0.1), gilib.Categorical()
NOISE = normals(3, 17)
SHARED = Normalisation.identity(2, 2)
GI, FACTORISED = gilib.GlobalInducing(), gilib.Factorised()
IMAGES = normals(6, 2, 7, 5)
CONJUGATE = gilib.posteriors.Conjugate()


def net(**settings):
    return small_net(GI, **settings)


def mlp(*widths, **settings):
    settings.setdefault("inducing_points", X)
    return gilib.models.mlp(*(widths or (2, (3,), 1)), **settings)


def fit(likelihood=GAUSSIAN, x=X, y=Y, *, steps=1, model=None, **settings):
    return gilib.fit(model or net(), likelihood, x, y, steps=steps, progress=False, **settings)


def predict(x=X, likelihood=GAUSSIAN, *args, **settings):
    return gilib.predict(net(), likelihood, x, *args, **settings)


def elbo(likelihood=GAUSSIAN, y=Y, *, num_data=6, **settings):
    return gilib.elbo(net().draw(), likelihood, X, y, num_data=num_data, **settings)


def estimate(samples=2, points=6):
    return small_net(FACTORISED).estimate(samples, points)


def of_images(likelihood, targets):
    layers = [gilib.Conv2d(2, 3, 3)]
    return fit(likelihood, IMAGES, targets, model=gilib.Network(IMAGES[:4], layers, input_shape=(2, 7, 5)))


POINTS = {
    "no inducing points": (lambda: mlp(inducing_points=None), r"needs inducing points.* \[M, ...\]"),
    "M = 0": (lambda: mlp(inducing_points=X[:0]), r"inducing_points is empty: its shape is \[0, 2\]"),
    "a vector": (lambda: mlp(inducing_points=X[:, 0]), r"inducing_points must .* got (shape )?\[6\]"),
    "too many columns": (lambda: mlp(3, (3,), 1), r"must have 3 features, got shape \[6, 2\]"),
    "NaN": (lambda: mlp(inducing_points=NAN), "inducing_points holds 2 NaN or infinite entries"),
    "targets of another count": (lambda: mlp(pseudo_outputs=Y[:5, :1]), r"must have shape \[6, 1\].*got"),
    "replicas": (lambda: mlp(inducing_points=normals(4, 6, 2), replicas=(3,)), r"inducing_points must have"),
    "integers": (lambda: mlp(inducing_points=X.long()), "inducing_points.*(float|torch.int64)"),
    "integers, structured": (
        lambda: models.structured_gp(2, 1, width=2, inducing_points=X.long()),
        "inducing_points must be floating-point numbers, got torch.int64",
    ),
}
SETTINGS = {
    "no replica": (lambda: mlp(replicas=(0,)), r"replicas\[0\] must be an integer of at least 1, got 0"),
    "tiny images": (lambda: models.lenet((1, 3, 3)), "they need 4 × 4 pixels at least"),
    "labels without names": (lambda: Dataset("own", X, LABELS), "y holds labels, 0 to"),
    "labels for one output": (lambda: mlp(pseudo_outputs=LABELS), "pseudo_outputs of a"),
    "unknown precision": (lambda: gilib.GlobalInducing(precision="diag"), "unknown precision 'diag': choose"),
    "two posteriors of four": (lambda: mlp(2, (3, 3, 3), 1, posterior=[GI, GI, GI]), "one for each of the 4"),
}
KINDS = {
    "posterior class": (lambda: mlp(posterior=gilib.GlobalInducing), r"instance: write GlobalInducing\(\)"),
    "prior class": (lambda: mlp(prior=gilib.NealPrior), r"prior must be an instance: write NealPrior\(\)"),
    "posterior by name": (lambda: mlp(posterior="gi"), "posterior must be a Posterior, got str"),
    "activation by name": (lambda: mlp(activation="relu"), r"such as torch.nn.LeakyReLU\(0.2\), got 'relu'"),
    "activation function": (lambda: mlp(activation=torch.relu), "activation.*class"),
    "one hidden width": (lambda: mlp(2, np.int64(5), 1), r"hidden must be a list or tuple, .*hidden=\(5,\)"),
    "one replica axis": (lambda: mlp(replicas=3), r"replicas must be a tuple.* write replicas=\(3,\)"),
    "posterior of a sparse process": (
        lambda: models.sparse_gp(2, 1, inducing_points=X, posterior=gilib.FreeGaussian()),
        "sparse_gp has the posterior FreeGaussian: deep_gp",
    ),
    "layers and points in another order": (
        lambda: gilib.Network([gilib.Linear(2, 1, FACTORISED)], X),
        "inducing_points must be a torch.Tensor, got list",
    ),
    "one layer in place of a list": (
        lambda: gilib.Network(X, gilib.Linear(2, 1, FACTORISED)),
        "layers must be a list or tuple, got Linear",
    ),
    "a table of numpy": (
        lambda: Dataset("own", X.numpy(), X.numpy()),
        r"x must be a torch.Tensor, got ndarray: hand over torch.from_numpy\(...\) of it",
    ),
    "a recipe's integers": (
        lambda: gilib.recommended("gp").train(X.long(), Y),
        r"x must hold floating-point numbers, got torch.int64",
    ),
    "words for points": (lambda: mlp(inducing_points=np.array([["a", "b"]])), "points must be a"),
    "list of targets": (lambda: mlp(pseudo_outputs=Y.tolist()), "outputs must be a torch.Tensor, got list"),
    "fit: data frame": (lambda: fit(x=pd.DataFrame(X)), r"got DataFrame: hand over its .to_numpy\(\)"),
    "fit: likelihood class": (lambda: fit(gilib.Categorical), r"must be an instance: write Categorical\(\)"),
    "fit: a number": (lambda: fit(0.1), "likelihood must be a Likelihood, got float"),
    "fit: a module": (lambda: fit(model=nn.Linear(2, 2)), "net must be a Network, got Linear"),
    "fit: y of integers": (lambda: fit(y=torch.ones(6, 2, dtype=torch.long)), "torch.int64"),
    "fit: a weight in place of a schedule": (lambda: fit(kl_weight=0.5), "kl_weight must be a function of"),
    "fit: a class of callbacks": (lambda: fit(callbacks=[gilib.training.Plateau]), "a callback must be an"),
    "predict: labels of floats": (
        lambda: predict(X, CATEGORICAL).log_prob(LABELS.double()),
        "class labels must be integers, got torch.float64",
    ),
    "fit: labels of floats": (lambda: fit(CATEGORICAL, y=Y[:, 0]), "labels must be integers, got"),
    "predict: likelihood class": (lambda: predict(likelihood=gilib.Gaussian), "Gaussian"),
    "predict: list x": (lambda: predict(X.tolist()), "x must be a torch.Tensor, got list"),
    "points of objects": (lambda: predict(NAN.numpy().astype(object)), "of object: .*dtype=float"),
    "points in a list": (lambda: net().draw()(X.tolist()), "x must be a torch.Tensor, got list"),
    "network as a function": (lambda: net()(X), r"draw first: net.draw\(10\)\(x\)"),
    "iwbo of an estimate": (lambda: gilib.iwbo(estimate(), GAUSSIAN, X, Y), "iwbo needs joint draws"),
    "num_data missing": (lambda: gilib.elbo(net().draw(), GAUSSIAN, X, Y), "num_data"),
}
DRAWING = {
    "no samples": (lambda: net().draw(0), "num_samples must be an integer of at least 1, got 0"),
    "no points": (lambda: estimate(2, 0), "num_points must be an integer of at least 1, got 0"),
    "one point": (lambda: net().draw()(X[0]), r"takes points \[..., N, 2\], got \[2\]"),
    "wide points": (lambda: net().draw()(normals(6, 3)), r"takes points \[..., N, 2\], got \[6, 3\]"),
    "one image": (
        lambda: gilib.layers.pointwise.PointwiseFunction(nn.Flatten(), 2)(torch.zeros(2, 2)),
        r"Flatten takes points \[..., N, ...\] with 2 axes each, got one of shape \[2, 2\]",
    ),
    "noise of another size": (lambda: net().draw(noise=normals(3, 4)), r"noise must have .* \[S, 17\], got"),
    "noise without replicas": (lambda: net(replicas=(2,)).draw(noise=NOISE), r"noise must have .* \[S, 2"),
    "noise of another dtype": (lambda: net().draw(noise=NOISE.float()), "noise .*float32.*float64"),
    "noise elsewhere": (lambda: net().draw(noise=NOISE.to("meta")), "noise is on meta"),
    "num_data 0": (lambda: elbo(num_data=0), "num_data must be an integer"),
    "num_data small": (lambda: elbo(num_data=5), "5 is less than this batch of 6"),
    "reduction": (lambda: elbo(reduction="sum"), "unknown reduction 'sum'"),
    "elbo of labels": (lambda: elbo(CATEGORICAL, LABELS[:, None]), r"labels must have shape \[6\], got \[6"),
}
TRAINING = {
    "x too wide": (lambda: fit(x=normals(6, 3)), r"x must hold points of shape \[2\], got \[6, 3\]"),
    "x a vector": (lambda: fit(x=X[:, 0]), r"x must have shape .* got \[6\]"),
    "x empty": (lambda: fit(x=X[:0], y=Y[:0]), "x is empty"),
    "x NaN": (lambda: fit(x=NAN), "x holds 2 NaN or infinite entries"),
    "x float32": (lambda: fit(x=X.float()), r"x has dtype torch.float32 but the network has torch.float64"),
    "x elsewhere": (lambda: fit(x=X.to("meta")), "x is on meta but the network is on cpu"),
    "x of replicas": (lambda: fit(x=X.expand(3, 6, 2)), r"x must have shape .*got \[3, 6, 2\]"),
    "y a vector": (lambda: fit(y=Y[:, 0]), r"(y|targets) must have shape .*got \[6\]"),
    "y too short": (lambda: fit(y=Y[:5]), r"targets must have shape \[6, 2\].*got \[5, 2\]"),
    "y infinite": (lambda: fit(y=INFINITE), "y holds 6 NaN or infinite entries"),
    "labels too short": (lambda: fit(CATEGORICAL, y=LABELS[:5]), r"labels must have shape \[6\], got \[5\]"),
    "labels too large": (lambda: fit(CATEGORICAL, y=LABELS + 1), r"lie in 0 \.\.\. 1 .*got 1 \.\.\. 2"),
    "one class": (
        lambda: fit(CATEGORICAL, y=0 * LABELS, model=mlp(dtype=X.dtype)),
        "at least two: this network",
    ),
    "images as targets": (
        lambda: of_images(GAUSSIAN, normals(6, 3, 7, 5)),
        r"gives \[3, 7, 5\]: end it with",
    ),
    "labels of images": (lambda: of_images(CATEGORICAL, LABELS), r"gives \[3, 7, 5\]: end it with"),
    "points of a recipe": (
        lambda: gilib.recommended("network").train(X, Y[:5], progress=False),
        "x holds 6 points and y 5",
    ),
    "a long seed": (lambda: fit(seed=2**63), "seed must have at most 63 bits, got"),
    "long seeds": (
        lambda: fit(seed=[0, 2**70], model=net(replicas=(2,))),
        "seed must have at most 63 bits, got",
    ),
    "Adam for what has no parameters": (
        lambda: fit(gilib.Gaussian(0.1, learn=True), model=small_net(CONJUGATE)),
        "rule=gilib.training.Bali",
    ),
    "steps": (lambda: fit(steps=0), "steps must be an integer of at least 1, got 0"),
    "samples": (lambda: fit(num_samples=0), "num_samples must be an integer of at least 1, got 0"),
    "batch": (lambda: fit(batch_size=0), "batch_size must be an integer of at least 1, got 0"),
    "rate of a group": (lambda: gilib.Adam(groups={"layers": -1.0}), r"groups\['layers'\] must be a"),
    "unknown group": (lambda: fit(rule=gilib.Adam(groups={"weights": 1.0})), "groups: no parameter is, or"),
    "estimator": (lambda: fit(estimator="flipout"), "unknown estimator 'flipout': choose one of 'draw'"),
}
PREDICTING = {
    "x too wide": (lambda: predict(normals(6, 3)), r"x must hold points of shape \[2\], got \[6, 3\]"),
    "x a vector": (lambda: predict(X[0]), r"x must have shape .* got \[2\]"),
    "x empty": (lambda: predict(X[:0]), "x is empty"),
    "x NaN": (lambda: predict(NAN), "x holds 2 NaN or infinite entries"),
    "x float32": (lambda: predict(X.float()), "x has dtype torch.float32 but the network has torch.float64"),
    "x elsewhere": (lambda: predict(X.to("meta")), "x is on meta but the network is on cpu"),
    "normalised x too wide": (lambda: predict(normals(6, 3), normalisation=SHARED), "x must have 2 columns"),
    "quantile": (lambda: predict().quantile(2.0), "needs one probability between 0 and 1, got 2.0"),
    "targets": (lambda: predict().log_prob(Y[:, :1]), r"targets must have shape \[6, 2\] .*got \[6, 1\]"),
    "classes of one output": (
        lambda: gilib.predict(mlp(dtype=X.dtype), CATEGORICAL, X),
        "classes need a network with an",
    ),
    "noise of other replicas": (
        lambda: predict(X, PerOutputGaussian([0.1, 0.1], replicas=(2,))),
        r"PerOutputGaussian\(replicas=\(2,\)\) has a noise for each of these",
    ),
    "labels out of range": (lambda: predict(X, CATEGORICAL).log_prob(LABELS + 5), "0 ... 1, got 5 ... 6"),
    "labels": (lambda: predict(X, CATEGORICAL).log_prob(LABELS[:4]), r"labels must have shape \[6\], got"),
}
TABLES = {"points": POINTS, "settings": SETTINGS, "drawing": DRAWING, "fit": TRAINING, "predict": PREDICTING}
VALUES = {f"{room}: {name}": entry for room, table in TABLES.items() for name, entry in table.items()}

test_values_that_do_not_fit = refusals(VALUES)
test_things_of_the_wrong_kind = refusals(KINDS, TypeError)


def test_the_table_is_right_about_the_shapes():
    """What the entries break is sound to begin with."""
    assert net().noise_size == 17
    assert fit().elbo.shape == fit(CATEGORICAL, y=LABELS).elbo.shape == (1,)
    assert predict().log_prob(Y).shape == predict(X, CATEGORICAL).log_prob(LABELS).shape == (6,)
    assert mlp(pseudo_outputs=Y[:, :1]).output_shape == (1,)
    assert net().draw(noise=NOISE).log_pq.shape == (3,)


class Unkept(gilib.training.Callback):
    """Its state cannot be read from a file."""

    def __call__(self, step, bound, net):
        return None

    def state_dict(self):
        return {"lock": print}


def test_a_callback_that_no_checkpoint_can_hold(tmp_path):
    with pytest.raises(TypeError, match=r"state_dict\(\) of Unkept must hold plain values only"):
        fit(callbacks=[Unkept()], checkpoint=tmp_path / "run.pt")
    assert fit(callbacks=[Unkept()]).elbo.shape == (1,)


@pytest.mark.parametrize(
    "broken",
    [
        {"x": NAN},
        {"y": Y[:5]},
        {"rule": gilib.Adam(groups={"weights": 1.0})},
        {"likelihood": CATEGORICAL, "y": LABELS + 1},
        {"callbacks": [Unkept()]},
    ],
)
def test_refusals_come_before_any_work(broken, tmp_path):
    """No parameter moves and no file appears."""
    model = net()
    with pytest.raises((ValueError, TypeError)):
        fit(model=model, checkpoint=tmp_path / "checkpoint.pt", **broken)
    assert same(model, net())
    assert not list(tmp_path.iterdir())


def plain():
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
    net, same = plain(), torch.arange(12).reshape(6, 2).to(X)
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
    net = plain()
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
    net = plain()
    draw = net.draw(2)
    with pytest.raises(ValueError, match=f"kl_weight must be a finite number of at least 0, got {weight}"):
        gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=len(X), kl_weight=weight)
    settings = {"steps": 3, "kl_weight": lambda s: weight if s == 2 else 1.0, "progress": False}
    with pytest.raises(ValueError, match=f"finite and at least 0, got {weight} at step 2"):
        gilib.fit(net, gilib.Gaussian(0.1), X, Y, **settings)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool", "uint64"])
def test_labels_of_any_integer_dtype(dtype):
    whole, nets, likelihood = torch.arange(6) % 2, [plain(), plain()], gilib.Categorical()
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
