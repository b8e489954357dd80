"""Gaussians over inducing outputs, free and propagated: where they start, and what ends no training."""

import pytest
import torch

import gilib
from gilib.posteriors import BuildContext, PropagatedGaussian
from gilib.sites import InducingOutputs
from tests.support import D, assert_equal, normals

M, OUTPUTS = 4, 2


@pytest.mark.parametrize(
    ("last", "scale", "start"), [(True, None, 1.0), (False, None, 0.1), (True, 0.3, 0.3)]
)
def test_where_a_free_gaussian_starts(last, scale, start):
    spec = gilib.FreeGaussian(M, scale)
    module = spec.build(InducingOutputs(M, OUTPUTS), BuildContext(dtype=D, last=last, replicas=(3,)))
    assert torch.equal(module.mean, torch.zeros(3, M, OUTPUTS, dtype=D))
    assert_equal(module.root.detach(), (start * torch.eye(M, dtype=D)).expand(3, OUTPUTS, M, M))


def test_the_last_propagated_layer_starts_at_the_targets():
    x, y = normals(6, 1, seed=1), normals(6, 1, seed=2)
    net = gilib.models.deep_gp(
        1, 1, 2, posterior=PropagatedGaussian(), inducing_points=x, pseudo_outputs=y, dtype=D
    )
    hidden, last = (module for module in net.modules() if type(module).__name__ == "PropagatedInducing")
    assert torch.equal(last.mean, y)
    assert not hidden.mean.any()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (gilib.Linear(2, 1, gilib.FreeGaussian(3)), "FreeGaussian is over the inducing outputs.*in gilib.GP"),
        (gilib.Linear(2, 1, PropagatedGaussian()), "PropagatedGaussian is over the inducing outputs"),
        (gilib.GP(2, 1, posterior=gilib.FreeGaussian()), "say how"),
        (gilib.GP(2, 1, posterior=PropagatedGaussian()), "PropagatedGaussian needs inducing points"),
    ],
)
def test_refusals(layer, message):
    with pytest.raises(ValueError, match=f"layer 0: {message}"):
        gilib.Network(None, [layer])


def test_a_factor_whose_diagonal_meets_zero_does_not_end_a_training():
    """A first step of Adam is as long as its rate: a start of that size may land on zero exactly."""
    x = normals(12, 1, seed=1)
    net = gilib.models.sparse_gp(1, 1, inducing_points=x[:4], dtype=D)
    with torch.no_grad():
        next(iter(net.layers)).weights.root[0, 1, 1] = 0.0
    history = gilib.fit(net, gilib.Gaussian(0.1), x, x.sin(), steps=3, num_samples=1, progress=False)
    assert bool(history.elbo.isfinite().all())
