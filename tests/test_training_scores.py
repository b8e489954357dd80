"""The scores of all layers at once, and what draws of `Conjugate` note of themselves."""

import copy

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import Composition, record
from gilib.posteriors.notes import noted_places
from gilib.training import Bali
from gilib.training.rules.layerwise import layers_of, regression_of
from gilib.training.rules.scores import Scores
from tests.layerwise import LABELS, B, N, X, fit, model, noise, regressions
from tests.support import D, assert_equal, normals, seeded


def images():
    prior, conjugate = gilib.NealPrior(2.0), gilib.posteriors.Conjugate()
    layers = [gilib.Conv2d(1, 3, 3, conjugate, prior), nn.Flatten(), gilib.Linear(27, 3, conjugate, prior)]
    net = gilib.Network(None, layers, input_shape=(1, 3, 3), dtype=D)
    fit(net, gilib.Categorical(), normals(N, 1, 3, 3), LABELS, steps=4, batch_size=B)
    return net, normals(7, 1, 3, 3)


def trained(replicas):
    net = model(replicas=replicas)
    fit(net, noise(replicas), steps=6, batch_size=B, seed=[1, 2] if replicas else 1)
    return net, X[:7]


@pytest.mark.parametrize("make", [lambda: trained(()), lambda: trained((2,)), images])
def test_layers_are_scored_together_as_one_by_one(make):
    net, x = make()
    layers = layers_of(net)
    own = [regression_of(layer, net.replicas, False) for layer in layers]
    base = net.base_noise(3, seeded(5))
    expected = net.draw(noise=base)
    with noted_places(scored=False) as places:
        found = net.draw(noise=base)
    assert found.log_pq is None and net.draw(noise=base).log_pq is not None
    steps = record(found.function, x).drawn
    assert_equal(Scores(own)(base, steps), expected.log_pq, 1e-10)
    for layer in layers:
        posterior = layer.weights
        scaled, white = places[posterior]
        coloured = torch.linalg.solve_triangular(posterior.precision_tril.mT, white, upper=True)
        assert_equal(scaled, posterior.mean + coloured, 1e-10)
    assert_equal(found(x), expected(x), 0.0)


def remembering(posterior):
    inverse = torch.linalg.inv(posterior.precision_tril).mT
    posterior.remember_inverse(inverse)


def test_a_remembered_inverse_changes_no_draw():
    net, x = trained(())
    before = net.draw(5, generator=seeded(1))(x)
    for own in regressions(net):
        remembering(own)
    assert_equal(net.draw(5, generator=seeded(1))(x), before, 1e-10)
    assert_equal(copy.deepcopy(net).draw(5, generator=seeded(1))(x), before, 1e-10)


@pytest.mark.parametrize("change", ["loaded", "trained", "rounded"])
def test_an_inverse_is_forgotten_with_its_factor(change):
    """Draws are then those of a network that never had one."""
    (net, x), (other, _) = trained(()), trained(())
    for own in regressions(net):
        remembering(own)
    if change == "loaded":
        state = {name: 1.5 * value for name, value in net.state_dict().items() if "tril" in name}
        for each in (net, other):
            each.load_state_dict(each.state_dict() | state)
    elif change == "trained":
        for each in (net, other):
            fit(each, noise(), steps=1, batch_size=B, rule=Bali(), seed=9)
    else:
        net, other, x = net.float(), other.float(), x.float()
    found, expected = (each.draw(5, generator=seeded(1))(x) for each in (net, other))
    assert_equal(found, expected, 1e-6 if change == "rounded" else 1e-10)


def test_recorded_outputs_become_variables():
    """Gradients at outputs are those of a pass whose input has one; the input itself, given on, has none."""
    net = gilib.models.mlp(2, (5, 4), 1, posterior=gilib.PointEstimate()).requires_grad_(False)
    function, x = net.draw(1).function, torch.randn(7, 2)
    found, expected = [], []
    for own, start, variables in ((found, x, True), (expected, x.clone().requires_grad_(), False)):
        output, steps = record(Composition((lambda value: value, function)), start, variables)
        own += torch.autograd.grad(output.square().sum(), [step.output for step in steps])
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert not x.requires_grad
