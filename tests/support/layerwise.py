"""Small problems for layerwise inference, shared by its tests."""

import math

import torch
from torch import nn

import gilib
from gilib.training import Bali
from tests.support import D, assert_equal, normals

N, B, STEPS, SEED = 120, 105, 12, 3
ALPHA, BETA, V0 = 0.3, 0.2, 3.0
X = normals(N, 2, seed=1)
Y = torch.stack([X.sum(1).sin(), X[:, 0] * X[:, 1]], 1) + 0.1 * normals(N, 2, seed=2)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def model(outputs=2, hidden=(5, 4), **settings):
    own = {"posterior": gilib.posteriors.Conjugate(), "prior": gilib.NealPrior(math.sqrt(V0)), "dtype": D}
    return gilib.models.mlp(2, hidden, outputs, activation=nn.Tanh, **(own | settings))


def noise(replicas=()):
    return gilib.Gaussian(1.0, learn=True, replicas=replicas)


def fit(net, likelihood, x=X, y=Y, *, steps=STEPS, rule=Bali(), **settings):  # noqa: B008
    settings = {"num_samples": 1, "seed": SEED, "progress": False} | settings
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def regressions(net):
    return [layer.weights for layer in net.layers if layer.has_weights]


def dense(inputs, outputs, **settings):
    return gilib.Linear(inputs, outputs, gilib.posteriors.Conjugate(), **settings)


def network(*layers, shape=(2,), **settings):
    return gilib.Network(None, layers, input_shape=shape, **({"dtype": D} | settings))


def assert_same_states(net, other, tolerance=1e-9):
    """Of all regressions in turn."""
    for one, two in zip(regressions(net), regressions(other), strict=True):
        assert_equal(one.mean, two.mean, tolerance)
        assert_equal(one.precision.tril(), two.precision.tril(), tolerance)
        assert_equal(one.noise_covariance, two.noise_covariance, tolerance)
        assert_equal(one.mean_square, two.mean_square, tolerance)
        assert float(one.df) == float(two.df)
