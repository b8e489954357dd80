"""Structured deep GPs as networks: faces, paths, and beside other layers."""

import torch

import gilib
from gilib.models import structured_gp
from gilib.structured import FullyCoupled, MeanField, Process, StripesAndArrow, StructuredGP
from tests.support import D, assert_equal, normals, seeded, shaken

X = normals(12, 3, seed=1)
Y = torch.sin(X.sum(-1, keepdim=True))
Z = normals(6, 3, seed=2)
FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled()}


def network(family, depth=3, **settings):
    settings |= {"family": FAMILIES[family], "inducing_points": Z, "generator": seeded(), "num_features": 16}
    return shaken(structured_gp(3, 1, depth, width=2, **settings), 0.2)


def test_a_draw_is_a_path_through_every_layer():
    """One function: at points together and apart; its parts can be recorded."""
    draw = network("fc").draw(3, generator=seeded(1))
    assert_equal(draw(X), torch.cat([draw(X[:5]), draw(X[5:])], -2), 1e-10)
    steps = gilib.record(draw.function, X).steps
    shapes = [(3, 12, 2), (12, 2), (3, 12, 2), (3, 12, 2), (3, 12, 1)]  # the first mean function has no draws
    assert [tuple(step.output.shape) for step in steps] == shapes
    estimate = network("star").estimate(4, 12, generator=seeded(1))
    outputs = estimate.function.functions[0].outputs(X)
    assert [tuple(value.shape) for value in outputs] == [(4, 12, 2), (4, 12, 2), (4, 12, 1)]
    assert_equal(outputs[-1], estimate(X))


def test_beside_other_layers_and_with_labels():
    """Below a linear layer with its own posterior; classes as targets; several outputs that depend."""
    first = Process(3, 2, mean=gilib.layers.FixedLinear(3, 2), inducing_inputs=Z)
    layer = StructuredGP([first, Process(2, 4, num_inducing=6)], FullyCoupled())
    net = gilib.Network(Z, [layer, torch.nn.Tanh(), gilib.Linear(4, 3)], generator=seeded(), dtype=D)
    labels = torch.arange(12) % 3
    history = gilib.fit(net, gilib.Categorical(), X, labels, steps=5, num_samples=2, progress=False)
    assert bool(torch.isfinite(history.elbo).all())
    assert gilib.predict(net, gilib.Categorical(), X, num_samples=3).mean.shape == (12, 3)
