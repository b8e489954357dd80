"""White noise: on the diagonal, nowhere else; in sums and products; the collapsed bound refuses it."""

import pytest
import torch

import gilib
from gilib.kernels import RBF, DotProduct, Periodic, White
from gilib.training import Collapsed
from tests.kernels.cases import INPUTS, function, module
from tests.support import D, assert_equal, assert_mean, normals

A, B = normals(4, INPUTS, seed=1), normals(6, INPUTS, seed=2)
TWICE = torch.cat([A, A[:2]])
KERNELS = {
    "alone": White(0.6),
    "sum": RBF(0.9, 1.3) + White(0.6),
    "product": RBF(0.9, 1.3) * White(0.6),
    "sum in a product": (RBF(0.9, 1.3) + White(0.6)) * DotProduct(0.5),
    "on a column": DotProduct() + (RBF(0.9) + White(0.6)).on(1),
}
ADDED = {"product": 1.3 * 0.6, "sum in a product": 0.6 * (0.5 * TWICE.square().sum(1) + 1.0)}  # else 0.6


@pytest.mark.parametrize("name", KERNELS)
def test_a_row_has_noise_of_its_own_even_where_it_stands_twice(name):
    kernel, added = function(KERNELS[name]), torch.as_tensor(ADDED.get(name, 0.6), dtype=D).expand(6).diag()
    smooth = kernel.without_white()
    assert_equal(kernel.gram(TWICE).detach(), (smooth.gram(TWICE) + added).detach(), 1e-12)
    assert_equal(kernel.cross(A, TWICE).detach(), smooth.cross(A, TWICE).detach(), 1e-12)
    assert smooth.feature_noise == kernel.feature_noise
    assert smooth.without_white().diagonal(A).isfinite().all()


@pytest.mark.parametrize("name", KERNELS)
def test_features_are_of_points_that_differ(name):
    """Mean zero, and the gram of rows that are apart; the smooth part's of the kernel without noise."""
    kernel = function(KERNELS[name])
    noise = normals(1, 20_000, kernel.feature_noise, seed=3)
    for part in {"alone": [kernel]}.get(name, [kernel, kernel.without_white()]):
        values = part.features(A, noise)[0].detach()
        if name == "product" and part is not kernel:
            assert not values.any()
            continue
        assert_mean(values.mT, torch.zeros(4, dtype=D))
        assert_mean(values.mT[:, :, None] * values.mT[:, None, :], part.gram(A).detach())


def test_kernels_without_it_are_themselves():
    for spec in (RBF(), RBF() + Periodic() * DotProduct(), RBF().on(0)):
        kernel = function(spec)
        assert kernel.without_white() is kernel


def test_replicas_and_single_precision():
    together, variances = module(RBF() + White(), replicas=(2,)), torch.tensor([[0.5], [2.0]], dtype=D)
    with torch.no_grad():
        together.parts[1].log["variance"].copy_(variances.log())
    assert together().cross(A, B).shape == (2, 4, 6)
    added = together().gram(A) - together().cross(A, A)
    assert_equal(added.detach(), variances[..., None] * torch.eye(4, dtype=D), 1e-12)
    assert together().gram(A.float()).dtype == together().cross(A.float(), B.float()).dtype == torch.float32
    noise = normals(3, 2, 5, together().feature_noise)
    assert together().features(A.float(), noise.float()).dtype == torch.float32


@pytest.mark.parametrize("points", [A, A[:2]], ids=["exact", "sparse"])
@pytest.mark.parametrize("name", ["alone", "sum", "on a column"])
def test_the_collapsed_bound_leaves_noise_to_the_likelihood(name, points):
    net = gilib.models.sparse_gp(INPUTS, 1, inducing_points=points, kernel=KERNELS[name])
    likelihood, y = gilib.Gaussian(0.1), normals(4, 1)
    with pytest.raises(ValueError, match=r"has white noise, and so has the likelihood.*leave .*White out"):
        gilib.training.solve_posterior(net, likelihood, A, y)
    with pytest.raises(ValueError, match="has white noise"):
        gilib.fit(net, likelihood, A, y, steps=1, rule=Collapsed(), progress=False)
