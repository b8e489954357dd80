"""torch.autocast around the library changes no number: it would round what posteriors do not bear."""

import copy

import pytest
import torch

import gilib
from gilib.likelihoods import CorrelatedGaussian
from gilib.training import Adam, Bali, Collapsed, NaturalGradient, NoisyKFAC, Speed
from tests.support import normals, seeded

X = normals(40, 3, seed=1).float()
Y = torch.sin(X.sum(-1, keepdim=True)) + 0.1 * normals(40, 1, seed=2).float()


def weights(posterior):
    return gilib.models.mlp(3, (8,), 1, posterior=posterior, inducing_points=X[:10], generator=seeded())


def sparse():
    return gilib.models.sparse_gp(3, 1, inducing_points=X, generator=seeded(), num_features=32)


def structured():
    settings = {"inducing_points": X[:10], "generator": seeded(), "num_features": 32}
    return gilib.models.structured_gp(3, 1, 2, width=2, **settings)


GAUSSIAN = gilib.Gaussian(0.1, learn=True)
NETS = {
    "global": (lambda: weights(gilib.GlobalInducing()), Adam(0.01)),
    "correlated": (lambda: weights(gilib.GlobalInducing()), Adam(0.01)),
    "conjugate": (lambda: weights(gilib.posteriors.Conjugate()), Bali()),
    "matrix": (lambda: weights(gilib.posteriors.MatrixGaussian()), NoisyKFAC(0.01)),
    "collapsed GP": (sparse, Collapsed()),
    "natural GP": (sparse, NaturalGradient(0.05)),
    "structured": (structured, Adam(0.01)),
}


def outcome(name, likelihood, speed):
    """Of everything that a user calls."""
    make, rule = NETS[name]
    torch.manual_seed(0)
    net, likelihood = make(), copy.deepcopy(likelihood)
    history = gilib.fit(net, likelihood, X, Y, steps=4, rule=rule, seed=0, speed=speed, progress=False)
    joint, estimate = (face(3, len(X), generator=seeded()) for face in (net.joint_draw, net.estimate))
    draw, prediction = (
        net.draw(3, generator=seeded()),
        gilib.predict(net, likelihood, X, 3, generator=seeded()),
    )
    found = {
        "history": history.elbo,
        "elbo": gilib.elbo(draw, likelihood, X, Y, num_data=len(X)),
        "estimate": gilib.elbo(estimate, likelihood, X, Y, num_data=len(X)),
        "iwbo": gilib.iwbo(joint, likelihood, X, Y),
        "bound": gilib.recipes.bound(net, likelihood, X, Y, num_samples=3, generator=seeded()),
        **{"mean": prediction.mean, "sd": prediction.sd, "log_prob": prediction.log_prob(Y), "draw": draw(X)},
        **net.state_dict(),
        **likelihood.state_dict(),
    }
    return {key: value.detach().clone() for key, value in found.items()}


@pytest.mark.parametrize("name", NETS)
def test_nothing_changes(name):
    """Not even of a likelihood with products of its own."""
    likelihood = CorrelatedGaussian(1, learn=True) if name == "correlated" else GAUSSIAN
    wanted = outcome(name, likelihood, Speed())
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome(name, likelihood, Speed())
        assert torch.is_autocast_enabled("cpu")
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype and torch.equal(found[key], value), key


def test_a_training_that_rounds_rounds_as_outside():
    """Its own autocast, of the data's pass alone, is not left."""
    speed = Speed(arithmetic="bfloat16")
    wanted, exact = (outcome("global", GAUSSIAN, own) for own in (speed, Speed()))
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome("global", GAUSSIAN, speed)
    assert torch.equal(found["history"], wanted["history"])
    assert not torch.equal(wanted["history"], exact["history"])
