"""Random features: mean zero, and the kernel as their covariance, for every kernel."""

import pytest
import torch

from tests.kernels.cases import INPUTS, KERNELS, function, module, textbook
from tests.support import D, assert_equal, assert_mean, normals, shaken

X = normals(4, INPUTS, seed=1)
MANY = 20_000


@pytest.mark.parametrize("name", KERNELS)
def test_mean_and_covariance(name):
    kernel = function(KERNELS[name])
    values = kernel.features(X, normals(1, MANY, kernel.feature_noise, seed=2))[0].detach()
    assert values.shape == (4, MANY)
    assert_mean(values.mT, torch.zeros(4, dtype=D))
    products = values.mT[:, :, None] * values.mT[:, None, :]
    assert_mean(products, textbook(KERNELS[name], X, X))


@pytest.mark.parametrize("name", KERNELS)
def test_sample_and_replica_axes_and_dtypes(name):
    """`[S, R, N, F]` of points with fewer axes, or with them; each slice as if it were alone."""
    kernel = shaken(module(KERNELS[name], replicas=(2,)), 0.3)()
    noise, points = normals(3, 2, 5, kernel.feature_noise, seed=3), normals(3, 2, 4, INPUTS, seed=4)
    shared, own = kernel.features(X, noise), kernel.features(points, noise)
    assert shared.shape == own.shape == (3, 2, 4, 5)
    for s in range(3):
        assert_equal(shared[s].detach(), kernel.features(X, noise[s]).detach(), 1e-12)
        assert_equal(own[s].detach(), kernel.features(points[s], noise[s]).detach(), 1e-12)
    single = kernel.features(X.float(), noise.float())
    assert single.dtype == torch.float32
    if name not in ("arc-cosine 0", "sum of a product"):  # steps jump
        assert_equal(single.double().detach(), shared.detach(), 1e-4)
