"""What posteriors learn: how many points, from which start, in which arithmetic."""

import pytest
import torch

import gilib
from gilib.linalg import KroneckerIdentity
from gilib.posteriors import BuildContext, Factorised, GlobalInducing, LocalInducing, PropagatedGaussian
from gilib.sites import DenseWeights, InducingOutputs
from tests.support import D, assert_equal, normals
from tests.support.oracles import assert_mean_within, draw_weights, normal

pytestmark = pytest.mark.usefixtures("float64")
POINTS, FAN_IN, OUTPUTS = 5, 4, 3


def build(spec, num_inducing=POINTS, well_scaled=True, **context):
    return spec.build(
        DenseWeights(FAN_IN, OUTPUTS, True, not well_scaled), BuildContext(num_inducing, **context)
    )


@pytest.mark.parametrize(("start", "variance"), [("paper", 0.02 / FAN_IN**0.5), ("reference", 0.02 / FAN_IN)])
def test_where_factorised_variances_start(start, variance):
    module = build(Factorised(initial_variance=0.02, variance_start=start))
    assert_equal(module.log_variance.detach().exp(), torch.full((FAN_IN, OUTPUTS), variance))


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


@pytest.mark.parametrize("family", [GlobalInducing, LocalInducing])
@pytest.mark.parametrize(
    ("given", "last", "start"), [(None, False, -4.0), (None, True, 0.0), (1.3, True, 1.3), (0.0, False, 0.0)]
)
def test_where_log_precisions_start(family, given, last, start):
    module = build(family(log_precision=given, log_precision_scale=2.0), last=last)
    assert_equal(module.pseudo.log_precision.detach(), torch.full((POINTS,), start))
    assert_equal(module.pseudo.scaled_log_precision.detach(), torch.full((POINTS,), start / 2))


def test_what_starts_as_standard_normals(generator):
    """Means too, stored at scale one: the prior of Neal."""
    module = build(LocalInducing(4000), generator=generator)
    wide = Factorised().build(DenseWeights(100, 400, True), BuildContext(generator=generator))
    assert_equal(wide.mean.detach(), wide.scaled_mean.detach() / 10)
    for values in (module.pseudo.outputs, module.inducing_inputs, wide.scaled_mean):
        assert_mean_within(values.detach().flatten(), 0.0)
        assert_mean_within(values.detach().flatten() ** 2, 1.0)


@pytest.mark.parametrize("shape", [(POINTS, OUTPUTS), (2, POINTS, OUTPUTS)])
def test_given_pseudo_outputs_are_copied(shape, generator):
    given = normal(generator, *shape).float()
    module = build(GlobalInducing(), pseudo_outputs=given, replicas=(2,))
    assert torch.equal(module.pseudo.outputs, given.double().expand(2, POINTS, OUTPUTS))
    with torch.no_grad():
        module.pseudo.outputs[0] += 1.0
    assert not torch.equal(module.pseudo.outputs[0], module.pseudo.outputs[1])
    assert torch.equal(given, normal(generator.manual_seed(20210), *shape).float())


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


SINGLE, DOUBLE = torch.float32, torch.float64


@pytest.mark.parametrize(
    ("settings", "well_scaled", "weakest", "expected"),
    [
        ({"log_precision": 0.0}, True, 1.0, SINGLE),
        ({}, False, 1.0, DOUBLE),
        ({"log_precision": 12.0}, True, 1.0, DOUBLE),  # the condition number may be large
        ({"log_precision": 0.0}, True, 1e-5, DOUBLE),
        ({"factor_dtype": "parameters"}, False, 1.0, SINGLE),
        ({"factor_dtype": "float32"}, False, 1.0, SINGLE),
        ({"factor_dtype": "float64"}, True, 1.0, DOUBLE),
    ],
)
def test_in_which_arithmetic_the_factor_is_taken(settings, well_scaled, weakest, expected, generator):
    """By default it reads the weakest precision of the prior."""
    module = build(GlobalInducing(**settings), well_scaled=well_scaled, dtype=SINGLE)
    features, noise = normal(generator, POINTS, FAN_IN).float(), normal(generator, 2, FAN_IN, OUTPUTS).float()
    prior = KroneckerIdentity(torch.tensor([weakest, 10.0], dtype=SINGLE).diag(), 2)
    assert module.condition(features, prior).precision.dtype == expected
    assert all(value.dtype == SINGLE for value in draw_weights(module, features, prior, noise))


M, TWO = 4, 2


@pytest.mark.parametrize(
    ("last", "scale", "start"), [(True, None, 1.0), (False, None, 0.1), (True, 0.3, 0.3)]
)
def test_where_a_free_gaussian_starts(last, scale, start):
    spec = gilib.FreeGaussian(M, scale)
    module = spec.build(InducingOutputs(M, TWO), BuildContext(dtype=D, last=last, replicas=(3,)))
    assert torch.equal(module.mean, torch.zeros(3, M, TWO, dtype=D))
    assert_equal(module.root.detach(), (start * torch.eye(M, dtype=D)).expand(3, TWO, M, M))


def test_the_last_propagated_layer_starts_at_the_targets():
    x, y = normals(6, 1, seed=1), normals(6, 1, seed=2)
    net = gilib.models.deep_gp(
        1, 1, 2, posterior=PropagatedGaussian(), inducing_points=x, pseudo_outputs=y, dtype=D
    )
    hidden, last = (module for module in net.modules() if type(module).__name__ == "PropagatedInducing")
    assert torch.equal(last.mean, y)
    assert not hidden.mean.any()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (gilib.Linear(2, 1, gilib.FreeGaussian(3)), "FreeGaussian is over the inducing outputs.*in gilib.GP"),
        (gilib.Linear(2, 1, PropagatedGaussian()), "PropagatedGaussian is over the inducing outputs"),
        (gilib.GP(2, 1, posterior=gilib.FreeGaussian()), "say how"),
        (gilib.GP(2, 1, posterior=PropagatedGaussian()), "PropagatedGaussian needs inducing points"),
    ],
)
def test_refusals(layer, message):
    with pytest.raises(ValueError, match=f"layer 0: {message}"):
        gilib.Network(None, [layer])


def test_a_factor_whose_diagonal_meets_zero_does_not_end_a_training():
    """A first step of Adam is as long as its rate: a start of that size may land on zero exactly."""
    x = normals(12, 1, seed=1)
    net = gilib.models.sparse_gp(1, 1, inducing_points=x[:4], dtype=D)
    with torch.no_grad():
        next(iter(net.layers)).weights.root[0, 1, 1] = 0.0
    history = gilib.fit(net, gilib.Gaussian(0.1), x, x.sin(), steps=3, num_samples=1, progress=False)
    assert bool(history.elbo.isfinite().all())
