"""Mistakes with processes, each refused before any work, with what was wanted, what came, and what to do."""

import math
import warnings

import pytest
import torch

import gilib
from tests.support import D, normals, refusals, seeded

Z, X, Y = normals(5, 2), normals(8, 2, seed=1), normals(8, 1, seed=2)
NAN = Z.clone().index_fill_(0, torch.tensor([2]), math.nan)
FREE, GLOBAL = gilib.FreeGaussian(5), gilib.GlobalInducing()


def network(*layers, inducing=Z, **settings):
    return gilib.Network(inducing, list(layers), generator=seeded(), **settings)


def deep(*widths, **settings):
    settings.setdefault("inducing_points", Z)
    return gilib.models.deep_gp(*(widths or (2, 1)), **settings)


VALUES = {
    "unequal widths in a sum": (
        lambda: network(gilib.Sum([gilib.GP(2, 3), gilib.layers.FixedLinear(2, 2)])),
        r"the branches of a sum must give one shape, got \[\[3\], \[2\]\]",
    ),
    "inducing inputs of another number": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(4, 2))),
        r"inducing_inputs must have shape \[5, 2\] .*got \[4, 2\]",
    ),
    "inducing inputs of other replicas": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(3, 5, 2)), replicas=(2,)),
        r"inducing_inputs must have shape \[2, 5, 2\] .*got \[3, 5, 2\]",
    ),
    "inducing inputs with NaN": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=NAN)),
        "inducing_inputs holds 2 NaN or infinite entries",
    ),
    "inducing inputs with global inducing": (
        lambda: gilib.GP(2, 1, posterior=GLOBAL, inducing_inputs=Z),
        "of a layer with GlobalInducing are what the layers below pass on: give the network inducing_points",
    ),
    "local without a number": (
        lambda: network(gilib.GP(2, 1, posterior=gilib.LocalInducing()), inducing=None),
        r"say how many inducing inputs the layer has: LocalInducing\(num_inducing=100\)",
    ),
    "deep: wider than the inputs": (lambda: deep(2, 1, width=3), "wider, got width=3.*build wider ones from"),
    "deep: too few points for directions": (
        lambda: deep(4, 1, width=3, inducing_points=normals(2, 4)),
        "2 inducing_points do not determine 3 principal directions: give more",
    ),
    "start: method": (lambda: gilib.models.inducing_start(X, 3, "kmedoids"), "unknown method 'kmedoids':"),
    "start: too many": (lambda: gilib.models.inducing_start(X, 9), "at least as many training inputs, got 8"),
    "a layer drawn from fewer inducing points": (
        lambda: next(iter(network(gilib.GP(2, 1)).layers)).draw(Z[:4]),
        r"GP\(2 → 1\) was built for inducing inputs \[..., 5, 2\], got \[4, 2\]",
    ),
    "two numbers of inducing points": (
        lambda: deep(posterior=gilib.FreeGaussian(3), inducing_points=Z),
        "has 3 inducing points of its own, but inducing_points gives initial values for 5: leave",
    ),
    "weights that are to be integrated out": (
        lambda: gilib.Network(
            None, [gilib.Linear(2, 1, posterior=gilib.LocalInducing(4, marginalise=True))], input_shape=(2,)
        ),
        "integrates the inducing outputs of a Gaussian process out, and weights are drawn: leave it out",
    ),
}
KINDS = {
    "a posterior over weights": (lambda: gilib.GP(2, 1, posterior=gilib.Factorised()), "got Factorised"),
    "the prior as a posterior": (lambda: gilib.GP(2, 1, posterior=gilib.FromPrior()), "one over what it is"),
    "one layer with a width": (
        lambda: gilib.models.sparse_gp(2, 1, inducing_points=Z, width=1, depth=2),
        "the settings replicas, generator, dtype, jitter, num_features, but no depth, width",
    ),
    "iwbo of paths": (
        lambda: gilib.iwbo(network(gilib.GP(2, 1)).draw(3), gilib.Gaussian(0.1), X, Y),
        r"paths of Gaussian processes are so on average only.*net.joint_draw\(3, 8\)",
    ),
}


test_values_that_do_not_fit = refusals(VALUES)
test_things_of_the_wrong_kind = refusals(KINDS, TypeError)


def test_what_the_entries_break_is_sound_to_begin_with():
    assert deep(2, 1, width=1).output_shape == (1,)
    net = network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(3, 5, 2)), replicas=(3,))
    layer = next(iter(net.layers))
    assert torch.equal(layer.inducing_inputs, normals(3, 5, 2)) and layer.inducing_inputs.dtype == D


def test_a_layer_says_that_it_is_not_built():
    for face in ("draw", "estimate", "joint_draw"):
        with pytest.raises(RuntimeError, match=r"GP\(2 → 1\) is not built: put it into a gilib.Network"):
            getattr(gilib.GP(2, 1, num_features=8), face)(Z)


def test_a_layer_with_global_inducing_says_what_it_draws_from():
    layer = next(iter(network(gilib.GP(2, 1)).layers))
    with pytest.raises(ValueError, match=r"GP\(2 → 1\) draws from inducing points: call draw\(u\)"):
        layer.draw()


def test_inducing_inputs_say_how_many_they_are():
    inputs = normals(4, 2)
    for given in (inputs, inputs.numpy()):
        process = gilib.GP(2, 1, posterior=gilib.FreeGaussian(), inducing_inputs=given)
        layer = network(process).layers[0]
        assert layer.num_inducing == 4 and torch.equal(layer.inducing_inputs, inputs)


def test_centres_that_coincide_are_named():
    rows = torch.arange(6.0)[:, None].repeat(5, 1)
    with pytest.warns(UserWarning, match=r"only \d of the 12 centres differ, because rows of x are repeated"):
        gilib.models.inducing_start(rows, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(gilib.models.inducing_start(rows.unique(dim=0), 6).unique()) == 6
