"""Random features: mean zero, and the kernel as their covariance, for every kernel."""

import pytest
import torch

from tests.kernels.cases import INPUTS, KERNELS, function, module, textbook
from tests.support import D, assert_equal, assert_mean, normals, shaken

X = normals(4, INPUTS, seed=1)
MANY = 20_000


def features(kernel, x, count=MANY, seed=2):
    """`[N, F]`, one set."""
    noise = normals(1, count, kernel.feature_noise, seed=seed)
    return kernel.features(x, noise)[0]


@pytest.mark.parametrize("name", KERNELS)
def test_mean_and_covariance(name):
    values = features(function(KERNELS[name]), X).detach()
    assert values.shape == (4, MANY)
    assert_mean(values.mT, torch.zeros(4, dtype=D))
    products = values.mT[:, :, None] * values.mT[:, None, :]
    assert_mean(products, textbook(KERNELS[name], X, X))


@pytest.mark.parametrize("name", KERNELS)
def test_sample_and_replica_axes(name):
    """`[S, R, N, F]` of points with fewer axes, or with them; each slice as if it were alone."""
    kernel = shaken(module(KERNELS[name], replicas=(2,)), 0.3)()
    noise, points = normals(3, 2, 5, kernel.feature_noise, seed=3), normals(3, 2, 4, INPUTS, seed=4)
    shared, own = kernel.features(X, noise), kernel.features(points, noise)
    assert shared.shape == own.shape == (3, 2, 4, 5)
    for s in range(3):
        assert_equal(shared[s].detach(), kernel.features(X, noise[s]).detach(), 1e-12)
        assert_equal(own[s].detach(), kernel.features(points[s], noise[s]).detach(), 1e-12)


@pytest.mark.parametrize("name", KERNELS)
def test_float32(name):
    kernel = function(KERNELS[name])
    noise = normals(1, 50, kernel.feature_noise, seed=5)
    low, high = kernel.features(X.float(), noise.float())[0], kernel.features(X, noise)[0]
    assert low.dtype == torch.float32
    if name not in ("arc-cosine 0", "sum of a product"):  # steps jump
        assert_equal(low.double().detach(), high.detach(), 1e-4)
