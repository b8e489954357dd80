"""What VOGN, Vadam, noisy Adam and IVON refuse."""

import pytest
import torch
from torch import nn

import gilib
from gilib.training import IVON, VOGN
from tests.support import D, normals, small_net
from tests.support.variational import fit


def refused(match, net=None, **settings):
    net = small_net(gilib.Factorised()) if net is None else net
    with pytest.raises(ValueError, match=match):
        fit(net, IVON(), **settings)


def test_networks_that_do_not_fit():
    refused("has none that are learned: build it with posterior", net=small_net(gilib.PointEstimate()))
    refused("needs a prior of known variance", net=small_net(gilib.Factorised(), gilib.ScalePrior()))
    refused("needs estimator='draw'", estimator="pointwise")
    refused(
        "cannot leave out a replica", net=small_net(gilib.Factorised(), replicas=(2,)), on_divergence="freeze"
    )
    layers = [gilib.Conv2d(1, 2, 3, gilib.Factorised()), nn.Flatten(), gilib.Linear(8, 2, gilib.Factorised())]
    net = gilib.Network(None, layers, input_shape=(1, 2, 2), dtype=D)
    with pytest.raises(ValueError, match=r"VOGN needs gradients .* Conv2d\(1 → 2, 3 × 3\): use"):
        fit(net, VOGN(), normals(7, 1, 2, 2))


def test_tempering_must_be_positive():
    refused("divides by kl_weight, which is 0.0 at step 0", kl_weight=gilib.objectives.SteppedTempering(10))


def test_divergence_is_an_error():
    with pytest.raises(gilib.training.DivergenceError, match="not finite"):
        fit(small_net(gilib.Factorised()), IVON(1e300), steps=4)
    broken = small_net(gilib.Factorised())
    with torch.no_grad():
        next(broken.parameters())[0] = torch.nan  # no sign of another order of layers
    with pytest.raises(gilib.training.DivergenceError, match="not finite at step 0"):
        fit(broken, IVON(), steps=4)


def test_processes_are_refused_for_what_they_are():
    """Not for the estimator that they prefer."""
    net = gilib.models.sparse_gp(2, 1, inducing_points=normals(5, 2))
    with pytest.raises(ValueError, match="trains layers with Factorised weights, but the network has none"):
        gilib.fit(
            net, gilib.Gaussian(0.1), normals(9, 2), normals(9, 1), steps=1, rule=VOGN(), progress=False
        )
