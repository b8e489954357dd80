"""Bad input of structured deep GPs, before any work; their paths, and other layers beside them."""

import pytest
import torch

import gilib
from gilib.linalg import FactorisationError
from gilib.models import structured_gp
from gilib.structured import FullyCoupled, Process, StripesAndArrow, StructuredGP
from tests.support import D, assert_equal, normals, refusals, seeded, shaken

Z = normals(5, 2)


def network(*processes, family=None, replicas=(), **settings):
    layer = StructuredGP(list(processes), family, **settings)
    return gilib.Network(None, [layer], replicas=replicas, generator=seeded(), dtype=D)


def model(in_features=2, **settings):
    return structured_gp(in_features, 1, **({"inducing_points": Z, "width": 2} | settings))


ERRORS = {
    "no processes": (lambda: StructuredGP([]), "a structured deep GP needs at least one process"),
    "a process in place of a list": (lambda: StructuredGP(Process(2, 1)), "be a list or tuple, got Process"),
    "a layer in place of a process": (lambda: StructuredGP([gilib.GP(2, 1)]), r"must be a Process, got GP"),
    "unequal widths": (
        lambda: StructuredGP([Process(2, 3, num_inducing=4), Process(2, 1, num_inducing=4)]),
        r"Process\(2 → 3\) gives 3 numbers, but Process\(2 → 1\), which follows, takes 2",
    ),
    "a family's class": (lambda: StructuredGP([Process(2, 1)], FullyCoupled), r"family must be an instance:"),
    "no inducing inputs": (lambda: network(Process(2, 1)), r"say how many inducing inputs the layer has:"),
    "a mean function of another width": (
        lambda: network(Process(2, 3, mean=torch.nn.Identity(), num_inducing=4), family=FullyCoupled()),
        r"the mean function of Process\(2 → 3\) must give 3 numbers and draw nothing, got Identity, which "
        r"gives \[2\]: use gilib.layers.FixedLinear",
    ),
    "a mean function that draws": (
        lambda: network(Process(2, 1, mean=gilib.Linear(2, 1, posterior=gilib.Factorised()), num_inducing=4)),
        "must give 1 numbers and draw nothing, got Linear",
    ),
    "model: inducing points": (lambda: model(in_features=3), r"inducing_points must have 3 features, got"),
    "model: mean points": (lambda: model(mean_points=normals(9, 4)), r"mean_points must have 2 features,"),
    "model: too few points for directions": (
        lambda: model(in_features=4, width=3, inducing_points=normals(2, 4)),
        r"2 mean_points \(or inducing points in their place\) do not determine 3 principal directions",
    ),
    "not built": (lambda: StructuredGP([Process(2, 1, num_inducing=4)]).estimate(), r"into a gilib.Network"),
}


test_what_does_not_fit = refusals(ERRORS, (ValueError, TypeError, RuntimeError))


def test_what_the_entries_break_is_sound_to_begin_with():
    model().estimate(2, 3)(normals(3, 2))
    network(Process(2, 3, mean=gilib.layers.FixedLinear(2, 3), num_inducing=4), family=FullyCoupled()).draw(2)


def test_a_process_is_used_once():
    """Neither by two layers, which would share its parameters, nor twice in one."""
    shared, twice = Process(2, 1, inducing_inputs=Z), Process(2, 2, inducing_inputs=Z)
    network(shared)
    message = r"Process\(2 → {}\) is used twice, here or in another network: construct one for each place"
    with pytest.raises(ValueError, match=message.format(1)):
        network(shared)
    with pytest.raises(ValueError, match=message.format(2)):
        network(twice, twice, family=FullyCoupled())


def test_a_kernel_matrix_without_a_factor_is_named():
    net = model(jitter=0.0)
    process = list(next(iter(net.layers)))[1]
    with torch.no_grad():
        process.inducing_inputs.copy_(torch.zeros_like(process.inducing_inputs))
    message = r"process 1, Process\(2 → 2\): the kernel matrix of the ind"
    with pytest.raises(FactorisationError, match=message):
        net.draw()


@pytest.mark.parametrize("lengthscale", [0.01, 100.0])
def test_duplicated_inducing_inputs_and_extreme_lengthscales_survive(lengthscale):
    """In float32, with the jitter of the default: finite bounds and gradients."""
    start = normals(8, 2).float().repeat(2, 1)
    net = model(family=FullyCoupled(0.5), inducing_points=start, kernel=gilib.kernels.RBF(lengthscale))
    estimate, x = net.estimate(3, 6, generator=seeded()), start[:6]
    bound = gilib.elbo(estimate, gilib.Gaussian(0.1), x, x[:, :1], num_data=6)
    gradients = torch.autograd.grad(bound, list(net.parameters()))
    assert all(bool(torch.isfinite(value).all()) for value in (bound, *gradients))


X = normals(12, 3, seed=1)
Y = torch.sin(X.sum(-1, keepdim=True))
STARTS = normals(6, 3, seed=2)


def deep(family):
    settings = {"family": family, "inducing_points": STARTS, "generator": seeded(), "num_features": 16}
    return shaken(structured_gp(3, 1, 3, width=2, **settings), 0.2)


def test_a_draw_is_a_path_through_every_layer():
    """One function: at points together and apart; its parts can be recorded."""
    draw = deep(FullyCoupled()).draw(3, generator=seeded(1))
    assert_equal(draw(X), torch.cat([draw(X[:5]), draw(X[5:])], -2), 1e-10)
    steps = gilib.record(draw.function, X).steps
    shapes = [(3, 12, 2), (12, 2), (3, 12, 2), (3, 12, 2), (3, 12, 1)]  # the first mean function has no draws
    assert [tuple(step.output.shape) for step in steps] == shapes
    estimate = deep(StripesAndArrow()).estimate(4, 12, generator=seeded(1))
    outputs = estimate.function.functions[0].outputs(X)
    assert [tuple(value.shape) for value in outputs] == [(4, 12, 2), (4, 12, 2), (4, 12, 1)]
    assert_equal(outputs[-1], estimate(X))


def test_beside_other_layers_and_with_labels():
    """Below a linear layer with its own posterior; classes as targets; several outputs that depend."""
    first = Process(3, 2, mean=gilib.layers.FixedLinear(3, 2), inducing_inputs=STARTS)
    layer = StructuredGP([first, Process(2, 4, num_inducing=6)], FullyCoupled())
    net = gilib.Network(STARTS, [layer, torch.nn.Tanh(), gilib.Linear(4, 3)], generator=seeded(), dtype=D)
    labels = torch.arange(12) % 3
    history = gilib.fit(net, gilib.Categorical(), X, labels, steps=5, num_samples=2, progress=False)
    assert bool(torch.isfinite(history.elbo).all())
    assert gilib.predict(net, gilib.Categorical(), X, num_samples=3).mean.shape == (12, 3)
