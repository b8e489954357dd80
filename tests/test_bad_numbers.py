"""Numbers that arrive otherwise than expected: of numpy, integers, too few of them, not finite."""

import math

import numpy as np
import pytest
import torch

import gilib
from tests.support import normals

X, Y = normals(12, 2, seed=1), normals(12, 1, seed=2)


@pytest.mark.parametrize("kernel", [gilib.kernels.RBF, gilib.kernels.Matern])
def test_a_lengthscale_of_numpy(kernel):
    assert kernel(lengthscale=np.float64(2.0)) == kernel(lengthscale=2.0)
    with pytest.raises(TypeError, match="a tuple of one for every input"):
        kernel(lengthscale=())


@pytest.mark.parametrize("recipe", [gilib.recommended(), gilib.recommended("gp")], ids=["network", "gp"])
def test_a_recipe_wants_a_target_for_every_point(recipe):
    with pytest.raises(ValueError, match="x holds 12 points and y 5"):
        recipe.train(X, Y[:5], progress=False)
    with pytest.raises(
        TypeError, match=r"x must hold floating-point numbers, got torch.int64: .*x.float\(\)"
    ):
        recipe.train(X.long(), Y, progress=False)


def test_a_name_is_no_posterior():
    with pytest.raises(TypeError, match="posterior must be a Posterior, got str"):
        gilib.models.mlp(2, (5,), 1, posterior="global")


def test_a_weight_of_the_divergence_that_is_not_finite():
    net = gilib.models.mlp(2, (3,), 1, inducing_points=X[:4])
    with pytest.raises(ValueError, match="kl_weight must give finite numbers, got nan at step 2"):
        gilib.fit(
            net,
            gilib.Gaussian(0.1),
            X,
            Y,
            steps=3,
            kl_weight=lambda s: math.nan if s == 2 else 1.0,
            progress=False,
        )


def test_a_process_takes_inducing_inputs_of_numpy():
    process = gilib.structured.Process(2, 1, inducing_inputs=X[:4].numpy())
    assert process.num_inducing == 4 and torch.is_tensor(process._start)
