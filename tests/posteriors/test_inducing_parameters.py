"""What inducing-point posteriors learn: how many points, from which start, in which arithmetic."""

import pytest
import torch

from gilib.linalg import ScaledIdentity
from gilib.posteriors import BuildContext, GlobalInducing, LocalInducing
from gilib.sites import DenseWeights
from tests.support.oracles import assert_mean_within, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS = 5, 4, 3
BOTH = pytest.mark.parametrize("family", [GlobalInducing, LocalInducing])


def build(spec, num_inducing=POINTS, well_scaled=True, **context):
    context = BuildContext(num_inducing, **{"dtype": torch.float64, **context})
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, True, not well_scaled), context)


@pytest.mark.parametrize(
    ("own", "network", "expected"), [(7, 5, 7), (None, 5, 5), (None, None, FAN_IN), (7, None, 7)]
)
def test_number_of_local_points(own, network, expected):
    module = build(LocalInducing(own), network)
    assert module.inducing_inputs.shape == (expected, FAN_IN - 1)
    assert module.pseudo.outputs.shape == (expected, OUTPUTS)
    assert module.pseudo.log_precision.shape == (expected,)


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("shared", {"pseudo.scaled_log_precision": (POINTS,)}),
        ("per_output", {"pseudo.scaled_log_precision": (OUTPUTS, POINTS)}),
        ("full", {"pseudo.scaled_log_precision": (POINTS,), "pseudo.scaled_root": (POINTS, POINTS)}),
    ],
)
def test_what_is_learned(kind, shapes):
    shapes = {"pseudo.outputs": (POINTS, OUTPUTS), **shapes}
    for family, own in ((GlobalInducing, {}), (LocalInducing, {"inducing_inputs": (POINTS, FAN_IN - 1)})):
        module = build(family(precision=kind), replicas=(2,))
        found = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
        assert found == {name: (2, *shape) for name, shape in {**shapes, **own}.items()}
        assert module.needs_inducing == (family is GlobalInducing)


@BOTH
@pytest.mark.parametrize(
    ("given", "last", "start"), [(None, False, -4.0), (None, True, 0.0), (1.3, True, 1.3), (0.0, False, 0.0)]
)
def test_where_log_precisions_start(family, given, last, start):
    module = build(family(log_precision=given, log_precision_scale=2.0), last=last)
    torch.testing.assert_close(module.pseudo.log_precision.detach(), torch.full((POINTS,), start))
    torch.testing.assert_close(module.pseudo.scaled_log_precision.detach(), torch.full((POINTS,), start / 2))


def test_pseudo_outputs_and_local_inputs_start_as_standard_normals(generator):
    module = build(LocalInducing(4000), generator=generator)
    for values in (module.pseudo.outputs, module.inducing_inputs):
        assert_mean_within(values.detach().flatten(), 0.0)
        assert_mean_within(values.detach().flatten() ** 2, 1.0)


@pytest.mark.parametrize("shape", [(POINTS, OUTPUTS), (2, POINTS, OUTPUTS)])
def test_given_pseudo_outputs_are_copied(shape, generator):
    given = normal(generator, *shape).float()
    module = build(GlobalInducing(), pseudo_outputs=given, replicas=(2,), dtype=torch.float32)
    assert torch.equal(module.pseudo.outputs, given.expand(2, POINTS, OUTPUTS))
    double = build(GlobalInducing(), pseudo_outputs=given, replicas=(2,))
    assert double.pseudo.outputs.dtype == torch.float64
    with torch.no_grad():
        module.pseudo.outputs[0] += 1.0
    assert not torch.equal(module.pseudo.outputs[0], module.pseudo.outputs[1])
    assert not torch.equal(module.pseudo.outputs[0].detach(), given.reshape(-1, POINTS, OUTPUTS)[0])


@pytest.mark.parametrize(
    ("replicas", "shape"),
    [
        ((), (POINTS + 1, OUTPUTS)),
        ((), (POINTS,)),
        ((), (1, POINTS, OUTPUTS)),
        ((3,), (2, POINTS, OUTPUTS)),
        ((3,), (2, 3, POINTS, OUTPUTS)),
    ],
)
def test_pseudo_outputs_of_the_wrong_shape(replicas, shape):
    wanted, got = (", ".join(map(str, axes)) for axes in ((*replicas, POINTS, OUTPUTS), shape))
    with pytest.raises(ValueError, match=rf"pseudo_outputs must have shape \[{wanted}\].*got \[{got}\]"):
        build(GlobalInducing(), pseudo_outputs=torch.zeros(shape), replicas=replicas)


@pytest.mark.parametrize(
    ("factor_dtype", "well_scaled", "expected"),
    [
        ("auto", True, None),
        ("auto", False, torch.float64),
        ("parameters", False, None),
        ("float32", False, torch.float32),
        ("float64", True, torch.float64),
    ],
)
def test_in_which_arithmetic_the_factor_is_taken(factor_dtype, well_scaled, expected):
    module = build(GlobalInducing(factor_dtype=factor_dtype), well_scaled=well_scaled, dtype=torch.float32)
    features, noise = torch.ones(POINTS, FAN_IN).float(), torch.ones(2, FAN_IN, OUTPUTS).float()
    prior = ScaledIdentity(torch.ones((), dtype=torch.float32), FAN_IN)
    assert module.condition(features, prior).precision.dtype == (expected or torch.float32)
    assert all(value.dtype == torch.float32 for value in draw_weights(module, features, prior, noise))
