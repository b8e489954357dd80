"""Predictions that draw every point by itself have the marginals of those that draw functions."""

import pytest
import torch

import gilib
from tests.support import D, assert_equal, normals, seeded, shaken, small_net

X, Y, NEW = normals(9, 2), normals(9, 2, seed=1), normals(5, 2, seed=2)
NOISE = gilib.Gaussian(0.2).to(D)


def structured():
    own = {"family": gilib.structured.StripesAndArrow(), "inducing_points": X[:5], "dtype": D}
    return shaken(gilib.models.structured_gp(2, 1, 2, width=2, **own), 0.2)


def processes(depth, posterior=gilib.GlobalInducing(), **settings):  # noqa: B008
    shared = {"inducing_points": X[:5], "generator": seeded(), "dtype": D, "num_features": 1000} | settings
    return shaken(gilib.models.deep_gp(2, 2, depth, posterior=posterior, **shared), 0.2)


NETS = {
    "factorised": lambda: small_net(gilib.Factorised()),
    "global inducing": lambda: small_net(gilib.GlobalInducing()),
    "replicas": lambda: small_net(gilib.Factorised(), replicas=(2,)),
    "deep GP": lambda: processes(2),
    "deep GP, free": lambda: processes(2, gilib.FreeGaussian()),
    "stripes and arrow": structured,
}


@pytest.mark.parametrize("name", NETS)
def test_marginals_are_those_of_functions(name):
    """Means, and second moments, of both within six standard errors of their difference."""
    net, samples = NETS[name](), 500
    settings = {"batch_size": 2 if name == "replicas" else None, "pointwise": True}
    found = gilib.predict(net, NOISE, NEW, samples, generator=seeded(1), **settings)
    drawn = gilib.predict(net, NOISE, NEW, samples, generator=seeded(2))
    for power in (1, 2):
        # the sparse features of a function's prior part have an error of their own, small at five hundred
        parts = [
            p.means**power + (p.component_sd.square().expand_as(p.means) if power == 2 else 0.0)
            for p in (found, drawn)
        ]
        error = sum(part.var(0) / samples for part in parts).sqrt()
        gap = (parts[0].mean(0) - parts[1].mean(0)).abs()
        assert bool((gap < 6.0 * error + 0.01 * parts[1].mean(0).abs()).all()), (name, power)


def test_one_process_is_exact_at_any_number_of_draws():
    net = processes(1, gilib.FreeGaussian())
    few = gilib.predict(net, NOISE, NEW, 1, pointwise=True, generator=seeded(3))
    many = gilib.predict(net, NOISE, NEW, 7, generator=seeded(3))
    assert_equal(few.mean, many.mean)
    assert_equal(few.sd, many.sd)


def test_every_point_has_noise_of_its_own():
    """A point that stands there twice is drawn twice."""
    net, twice = small_net(gilib.Factorised()), NEW[[0, 0]]
    alone = gilib.predict(net, NOISE, twice, 50, pointwise=True, generator=seeded(4))
    together = gilib.predict(net, NOISE, twice, 50, generator=seeded(4))
    assert torch.equal(together.means[:, 0], together.means[:, 1])
    assert not torch.isclose(alone.means[:, 0], alone.means[:, 1]).any()


def test_ensembles_are_refused():
    net = small_net(gilib.Factorised(), replicas=(2,))
    with pytest.raises(TypeError, match="pointwise=True is for a network, Ensemble draws functions"):
        gilib.predict(gilib.Ensemble(net), NOISE, NEW, pointwise=True)
