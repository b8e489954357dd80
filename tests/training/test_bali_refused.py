"""What BALI refuses, warns of, or survives."""

import pytest
import torch
from torch import nn

import gilib
from gilib.training import Bali, Speed
from gilib.training.rules.bali import LayerRegression
from tests.support import D, refusals, seeded
from tests.support.layerwise import STEPS, X, Y, dense, fit, model, network, noise, regressions


def test_gradients_that_are_not_finite_are_reported():
    """At once, before the state has changed, with the layer."""
    y, net = Y.clone(), model()
    y[0] = 1e200
    with pytest.raises(gilib.linalg.FactorisationError, match=r"Linear\(2 → 5\): .* training has diverged"):
        fit(net, noise(), X, y)
    assert all(int(own.steps) == 0 and bool((own.mean == 0).all()) for own in regressions(net))


def dead(dtype=D):
    """All units of the layer below are dead."""
    return network(dense(2, 3), nn.Threshold(1e9, 0.0), dense(3, 2), dtype=dtype, generator=seeded())


@pytest.mark.parametrize(("prior", "dtype"), [("absolute", torch.float32), ("relative", D)])
def test_an_output_without_a_gradient_is_left_where_it_is(prior, dtype):
    """v = 0, and 0 / 0 is no shift: but for a ridge regression's pull the first weights remain."""
    means = []
    for steps in (1, STEPS):
        net = dead(dtype)
        fit(net, noise(), X.to(dtype), Y.to(dtype), rule=Bali(prior=prior), steps=steps)
        assert bool((regressions(net)[0].mean_square == 0).all())
        means.append(regressions(net)[0].mean)
    first, last = means
    assert float((last - first).norm() / first.norm()) < 0.1


def test_a_layer_that_dies_keeps_its_prior():
    """Without any gradient v stays; else it would go to zero, and the prior's strength to infinity."""
    net = model()
    fit(net, noise())
    layer = LayerRegression(next(own for own in net.layers if own.has_weights), net.replicas, False)
    before, rate = layer.posterior.mean_square, torch.tensor(0.2, dtype=D)
    assert torch.equal(layer.scale(torch.zeros_like(before), rate), before)
    some = torch.zeros_like(before)
    some[..., 0] = 1.0
    assert torch.equal(layer.scale(some, rate), torch.lerp(before, some, rate))


REFUSED = {
    "another posterior": (
        lambda: model(posterior=(gilib.posteriors.Conjugate(), gilib.FromPrior())),
        r"BALI trains layers with gilib\.posteriors\.Conjugate, but Linear\(4 → 2\) has FromPrior",
    ),
    "parameters": (lambda: model(prior=gilib.NealPrior(learn=True)), r"layers\.layers\.0\.hyperparameters\."),
    "hyper-parameters": (
        lambda: network(dense(2, 2, prior=RandomScale())),
        r"Linear\(2 → 2\): BALI takes priors without hyper-parameters to infer",
    ),
    "nothing": (lambda: network(nn.Identity()), r"the network has"),
    "a layer without statistics": (
        lambda: network(OwnLayer(2, 2, gilib.posteriors.Conjugate())),
        r"Linear\(2 → 2\): BALI has statistics for Linear, Conv2d, not for OwnLayer",
    ),
    "an activation at the end": (
        lambda: network(dense(2, 2), nn.Tanh()),
        "must give the outputs of the network: .* without an activation after it",
    ),
    "residual end": (
        lambda: network(gilib.Residual([dense(2, 2)])),
        "must give the outputs of the network: end with it, outside of residual blocks",
    ),
}


class RandomScale(gilib.NealPrior):
    """Draws its scale."""

    def build(self, site, like):
        module = super().build(site, like)
        module.noise_size = 1
        return module


class OwnLayer(gilib.Linear):
    """Might do anything with its inputs."""


test_networks_that_it_does_not_serve = refusals(
    {name: (lambda build=build: fit(build(), noise()), message) for name, (build, message) in REFUSED.items()}
)


def test_problems_that_it_does_not_serve():
    with pytest.raises(ValueError, match=r"likelihood has it fixed: use Gaussian\(learn=True\)"):
        fit(model(), gilib.Gaussian(0.1))
    with pytest.raises(ValueError, match=r"use Gaussian\(learn=True, replicas=\(2,\)\), got replicas=\(\)"):
        fit(model(replicas=(2,)), noise())
    for learn in (True, False):
        with pytest.raises(ValueError, match=r"use CorrelatedGaussian\(2, learn=True\)"):
            fit(model(), gilib.likelihoods.PerOutputGaussian([1.0, 1.0], learn=learn))
    for frozen in (noise(), gilib.likelihoods.CorrelatedGaussian(2, learn=True)):
        with pytest.raises(ValueError, match=r"fixed: use (Correlated)?Gaussian\(.*leave its requires_grad"):
            fit(model(), frozen.requires_grad_(False))
    with pytest.raises(ValueError, match="Bali has no Kullback-Leibler term to weight: leave kl_weight"):
        fit(model(), noise(), kl_weight=lambda step: 0.5)
    with pytest.raises(ValueError, match="use arithmetic='full', got 'bfloat16'"):
        fit(model(dtype=torch.float32), noise(), X.float(), Y.float(), speed=Speed(arithmetic="bfloat16"))


def test_small_batches_are_warned_of():
    with pytest.warns(UserWarning, match="regressions of 20 points.*batch_size of 1000, or all points"):
        fit(model(), noise(), batch_size=20, steps=2)
