"""What inducing-point posteriors learn: how many points, from which start, in which arithmetic."""

import math

import pytest
import torch

from gilib.linalg import ScaledIdentity
from gilib.posteriors import BuildContext, GlobalInducing, LocalInducing
from gilib.sites import DenseWeights
from tests.support.oracles import assert_mean_within, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS = 5, 4, 3
BOTH = pytest.mark.parametrize("family", [GlobalInducing, LocalInducing])


def build(spec, num_inducing=POINTS, well_scaled=True, bias=True, **context):
    context = BuildContext(num_inducing, **{"dtype": torch.float64, **context})
    return spec.build(DenseWeights(FAN_IN, OUTPUTS, bias, not well_scaled), context)


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


@BOTH
def test_pseudo_outputs_start_as_standard_normals(family, generator):
    module = build(family(), 4000, generator=generator)
    for values in (module.pseudo.outputs, module.inducing_inputs if family is LocalInducing else None):
        if values is not None:
            assert_mean_within(values.detach().flatten(), 0.0)
            assert_mean_within(values.detach().flatten() ** 2, 1.0)


@pytest.mark.parametrize("shape", [(POINTS, OUTPUTS), (2, POINTS, OUTPUTS)])
def test_given_pseudo_outputs_are_copied(shape, generator):
    given = normal(generator, *shape)
    module = build(GlobalInducing(), last=True, pseudo_outputs=given, replicas=(2,))
    torch.testing.assert_close(
        module.pseudo.outputs.detach(), given.expand(2, POINTS, OUTPUTS), rtol=0, atol=0
    )
    with torch.no_grad():
        module.pseudo.outputs[0] += 1.0
    assert not torch.equal(module.pseudo.outputs[0], module.pseudo.outputs[1])
    assert not torch.equal(module.pseudo.outputs[0].detach(), given.reshape(-1, POINTS, OUTPUTS)[0])


def test_given_pseudo_outputs_take_the_dtype_of_the_network(generator):
    given = normal(generator, POINTS, OUTPUTS)
    module = build(GlobalInducing(), pseudo_outputs=given, dtype=torch.float32)
    assert module.pseudo.outputs.dtype == torch.float32


@pytest.mark.parametrize(
    "shape", [(POINTS + 1, OUTPUTS), (POINTS, OUTPUTS + 1), (OUTPUTS, POINTS), (POINTS,)]
)
def test_pseudo_outputs_of_the_wrong_shape(shape):
    wanted = rf"pseudo_outputs must have shape \[{POINTS}, {OUTPUTS}\].*got \[{', '.join(map(str, shape))}\]"
    with pytest.raises(ValueError, match=wanted):
        build(GlobalInducing(), pseudo_outputs=torch.zeros(shape))


@pytest.mark.parametrize(("replicas", "lead"), [((), (1,)), ((), (2,)), ((3,), (2,)), ((3,), (2, 3))])
def test_pseudo_outputs_with_axes_that_are_not_the_replicas(replicas, lead):
    with pytest.raises(ValueError, match="pseudo_outputs must have shape"):
        build(GlobalInducing(), pseudo_outputs=torch.zeros(*lead, POINTS, OUTPUTS), replicas=replicas)


@pytest.mark.parametrize("start", [math.inf, "a"])
def test_precisions_start_at_numbers(start):
    with pytest.raises(ValueError, match="log_precision must be a finite number, got"):
        GlobalInducing(log_precision=start)


# Arithmetic


@BOTH
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
def test_in_which_arithmetic_the_factor_is_taken(family, factor_dtype, well_scaled, expected):
    module = build(family(factor_dtype=factor_dtype), well_scaled=well_scaled, dtype=torch.float32)
    features = None if family is LocalInducing else torch.ones(POINTS, FAN_IN, dtype=torch.float32)
    prior = ScaledIdentity(torch.ones((), dtype=torch.float32), FAN_IN)
    assert module.condition(features, prior).precision.dtype == (expected or torch.float32)
    weights, log_pq = draw_weights(
        module, features, prior, torch.ones(2, FAN_IN, OUTPUTS, dtype=torch.float32)
    )
    assert weights.dtype == log_pq.dtype == torch.float32
