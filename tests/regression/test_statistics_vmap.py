"""Weighted Gram matrices under `torch.func.vmap`: equal to a loop, gradients too."""

import pytest
import torch

from gilib.statistics import weighted_gram
from tests.support.oracles import normal
from tests.support.statistics_cases import EXACT, FAN_IN, LEADS, OUTPUTS, POINTS, route  # noqa: F401

pytestmark = pytest.mark.usefixtures("float64")
IN_DIMS = pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (-3, 0), (0, -3)])


def batches(features, weights, in_dims):
    """Three different versions of each argument, stacked along its dimension; and the list of the three."""
    arguments, each = [], [[], [], []]
    for x, dim in zip((features, weights), in_dims, strict=True):
        versions = [x if dim is None else (1.0 + k) * x for k in range(3)]
        arguments.append(x if dim is None else torch.stack(versions, dim))
        for row, version in zip(each, versions, strict=True):
            row.append(version)
    return arguments, each


@pytest.mark.parametrize(
    ("lead", "parameters", "in_dims"),
    [(*lead, (-3, 0)) for lead in LEADS.args[1]]
    + [((6, 2), (2,), in_dims) for in_dims in IN_DIMS.args[1] if in_dims != (-3, 0)],
)
def test_vmap_equals_loop(lead, parameters, in_dims, generator):
    features = normal(generator, *lead, POINTS, FAN_IN).requires_grad_()
    weights = normal(generator, *parameters, OUTPUTS, POINTS).requires_grad_()
    arguments, each = batches(features, weights, in_dims)
    output = torch.func.vmap(weighted_gram, in_dims)(*arguments)
    expected = torch.stack([weighted_gram(*one) for one in each])
    torch.testing.assert_close(output, expected, **EXACT)
    upstream = normal(generator, *output.shape)
    gradients = torch.autograd.grad(output, (features, weights), upstream, retain_graph=True)
    oracle = torch.autograd.grad(expected, (features, weights), upstream)
    for gradient, wanted in zip(gradients, oracle, strict=True):
        torch.testing.assert_close(gradient, wanted, **EXACT)


@IN_DIMS
def test_vmap_of_the_gradient_equals_loop(in_dims, generator):
    features, weights = normal(generator, 6, 2, POINTS, FAN_IN), normal(generator, 2, OUTPUTS, POINTS)
    arguments, each = batches(features, weights, in_dims)
    function = torch.func.grad(lambda phi, lam: weighted_gram(phi, lam).sin().sum(), argnums=(0, 1))
    gradients = torch.func.vmap(function, in_dims)(*arguments)
    for k, one in enumerate(each):
        for gradient, wanted in zip(gradients, function(*one), strict=True):
            torch.testing.assert_close(gradient[k], wanted, **EXACT)


def test_nested_vmap_equals_the_batch(generator):
    features, weights = normal(generator, 4, 2, POINTS, FAN_IN), normal(generator, 2, OUTPUTS, POINTS)
    nested = torch.func.vmap(torch.func.vmap(weighted_gram), in_dims=(0, None))(features, weights)
    torch.testing.assert_close(nested, weighted_gram(features, weights), **EXACT)
