"""Mistakes in how parts of a model are put together: models, replicas, noise, labels, callbacks, files."""

import numpy as np
import pytest
import torch

import gilib
from gilib import models
from gilib.likelihoods import PerOutputGaussian
from gilib.posteriors import Conjugate
from gilib.posteriors.pseudo import signed_one_hot
from tests.support import normals

X, Y, LABELS = normals(9, 3), normals(9, 1, seed=1), torch.arange(9) % 2


def mlp(hidden=(4,), outputs=1, **settings):
    return models.mlp(3, hidden, outputs, **({"inducing_points": X} | settings))


def seeded():
    return torch.Generator().manual_seed(0)


def fit(net=None, likelihood=None, y=Y, **settings):
    noise = likelihood or gilib.Gaussian(0.1)
    return gilib.fit(net or mlp(), noise, X, y, **({"steps": 2, "progress": False} | settings))


def predicted(likelihood, outputs=1):
    return gilib.predict(mlp(outputs=outputs), likelihood, X, 3)


def conjugate():
    """A forgotten `rule=Bali()`: nothing but the noise would be trained."""
    net = models.mlp(3, (4,), 1, posterior=Conjugate(), dtype=torch.float64)
    return fit(net, gilib.Gaussian(0.1, learn=True))


class Unkept(gilib.training.Callback):
    """Its state cannot be read from a file."""

    def __call__(self, step, bound, net):
        return None

    def state_dict(self):
        return {"lock": print}


TYPE_ERRORS = {
    "one replica axis": (lambda: mlp(replicas=3), r"replicas must be a tuple.* write replicas=\(3,\)"),
    "one width": (lambda: mlp(np.int64(5)), r"hidden must be a list or tuple, got 5: write hidden=\(5,\)"),
    "posterior of a sparse process": (
        lambda: models.sparse_gp(3, 1, inducing_points=X, posterior=gilib.FreeGaussian()),
        "sparse_gp has the posterior FreeGaussian: deep_gp",
    ),
    "no points": (lambda: models.structured_gp(3, 1, inducing_points=None), "inducing_points must be a"),
    "a weight in place of a schedule": (lambda: fit(kl_weight=0.5), "kl_weight must be a function of the"),
    "a class of callbacks": (lambda: fit(callbacks=[gilib.training.Plateau]), r"a callback must be an"),
    "layers and points in another order": (
        lambda: gilib.Network([gilib.Linear(3, 1, gilib.Factorised())], X),
        "inducing_points must be a torch.Tensor, got list",
    ),
    "one layer in place of a list": (
        lambda: gilib.Network(X, gilib.Linear(3, 1, gilib.Factorised())),
        "layers must be a list or tuple, got Linear",
    ),
    "a table of numpy": (
        lambda: gilib.data.Dataset("own", np.ones((9, 1)), np.ones((9, 1))),
        r"x must be a torch.Tensor, got ndarray: hand over torch.from_numpy\(...\) of it",
    ),
    "labels that are no integers": (
        lambda: predicted(gilib.Categorical(), 2).log_prob(LABELS.double()),
        "class labels must be integers, got torch.float64",
    ),
}
VALUE_ERRORS = {
    "no replica": (lambda: mlp(replicas=(0,)), r"replicas\[0\] must be an integer of at least 1, got 0"),
    "integer points": (
        lambda: models.structured_gp(3, 1, width=2, inducing_points=X.long()),
        "inducing_points must be floating-point numbers, got torch.int64",
    ),
    "tiny images": (lambda: models.lenet((1, 3, 3)), "they need 4 × 4 pixels at least"),
    "classes of one output": (lambda: predicted(gilib.Categorical()), "classes need a network with an"),
    "a rule without its posterior": (
        lambda: fit(rule=gilib.training.NoisyKFAC()),
        r"build it with posterior=gilib.posteriors.MatrixGaussian\(\), or train it by gilib.Adam",
    ),
    "labels without names": (lambda: gilib.data.Dataset("own", X.double(), LABELS), "y holds labels, 0 to"),
    "labels for one output": (lambda: mlp(pseudo_outputs=torch.zeros(9).long()), "pseudo_outputs of a"),
    "Adam for what has no parameters": (conjugate, "rule=gilib.training.Bali"),
    "noise of other replicas": (
        lambda: predicted(PerOutputGaussian([0.1], replicas=(2,))),
        r"PerOutputGaussian\(replicas=\(2,\)\) has a noise for each of these",
    ),
    "labels out of range": (
        lambda: predicted(gilib.Categorical(), 2).log_prob(LABELS + 5),
        r"class labels must lie in 0 ... 1, got 5 ... 6",
    ),
}


@pytest.mark.parametrize(("call", "message"), TYPE_ERRORS.values(), ids=TYPE_ERRORS)
def test_things_of_the_wrong_kind(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_values_that_do_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_callback_that_no_checkpoint_can_hold_is_refused_before_any_step(tmp_path):
    with pytest.raises(TypeError, match=r"state_dict\(\) of Unkept must hold plain values only"):
        fit(callbacks=[Unkept()], checkpoint=tmp_path / "run.pt")
    assert not list(tmp_path.iterdir())
    assert fit(callbacks=[Unkept()]).elbo.shape == (2,)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "bool", "uint64"])
def test_labels_of_any_integer_dtype(dtype):
    labels = torch.from_numpy(LABELS.numpy().astype(dtype))
    nets, likelihood = [mlp(outputs=2, generator=seeded()) for _ in range(2)], gilib.Categorical()
    given, wanted = (
        fit(net, likelihood, y, batch_size=4).elbo for net, y in zip(nets, (labels, LABELS), strict=True)
    )
    assert torch.equal(given, wanted)
    told = gilib.predict(nets[0], likelihood, X, 3)
    assert torch.equal(told.log_prob(labels), told.log_prob(LABELS))
    assert torch.equal(signed_one_hot(labels, 2), signed_one_hot(LABELS, 2))
