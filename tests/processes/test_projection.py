"""Inducing outputs projected to many points: values against plain algebra, and the hand-written gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gilib import projection
from gilib.linalg.exponential import Exponents
from gilib.projection import Columns, project, project_columns
from tests.support import seeded
from tests.support.oracles import normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(scope="module", autouse=True, params=["one by one", "at once"])
def arrangement(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "MIN_PRODUCTS", 0 if request.param == "one by one" else 2**62)
        yield request.param


# leading axes of k, R⁻¹, m and S
LEADS = {
    "one": ((), (), (), ()),
    "samples of everything": ((3,), (3,), (3,), (3,)),
    "samples of points": ((3,), (), (), ()),
    "samples of w alone": ((), (), (3,), ()),
    "samples of all but the points": ((), (3,), (3,), (3,)),
    "samples and replicas": ((3, 2), (2,), (2,), (2,)),
    "samples of w, replicas of all": ((2,), (2,), (3, 2), (2,)),
    "inducing inputs that were drawn": ((3, 2), (3, 2), (3, 2), (2,)),
}


def close(ours, theirs, tolerance=1e-11):
    for pair in zip(ours, theirs, strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(*pair), rtol=tolerance, atol=tolerance)


def plain(kernel, inverse, mean, covariance):
    white = torch.einsum("...mk,...nk->...nm", inverse, kernel)
    first = torch.einsum("...nm,...mo->...no", white, mean)
    square = torch.einsum("...nm,...nm->...n", white, white)[..., None]
    if covariance is None:
        return first, square
    return first, square, torch.einsum("...nm,...omk,...nk->...no", white, covariance, white)


def parts(leads, points, size, outputs, generator, spread):
    kernel = normal(generator, *leads[0], points, size)
    inverse = normal(generator, *leads[1], size, size).tril()
    mean = normal(generator, *leads[2], size, outputs)
    covariance = positive_definite(generator, *leads[3], outputs, size, size) if spread else None
    return kernel, inverse, mean, covariance


def found(*inputs):
    return tuple(value for value in project(*inputs)[:3] if value is not None)


@given(
    st.sampled_from(list(LEADS)),
    st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)),
    st.booleans(),
    st.integers(0, 10**6),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_values_of_any_shape(name, sizes, spread, seed):
    inputs = parts(LEADS[name], *sizes, seeded(seed), spread)
    ours, theirs = found(*inputs), plain(*inputs)
    assert len(ours) == 2 + spread
    close(ours, theirs)


@pytest.mark.parametrize("evaluated", [False, True])
@pytest.mark.parametrize(  # S, which one case lacks
    ("name", "spread"), [*((name, True) for name in LEADS), ("samples and replicas", False)]
)
def test_gradients_by_finite_differences(name, spread, evaluated, generator):
    """In k, or in both coordinates of its exponents, R⁻¹, m, and a root of S, which stays symmetric."""
    points, inducing, *_ = leads = LEADS[name]
    kernel, inverse, mean, covariance = parts(leads, 3, 4, 2, generator, spread)
    exponents = normal(generator, *points, 2, 3), normal(generator, *inducing, 2, 4)
    first = exponents if evaluated else (kernel,)
    roots = [torch.linalg.cholesky(covariance)] if spread else []

    def call(*values):
        kernel = Exponents(*values[:2], torch.float64) if evaluated else values[0]
        inverse, mean, *root = values[1 + evaluated :]
        return found(kernel, inverse, mean, root[0] @ root[0].mT if spread else None)

    kernel = (exponents[0].mT @ exponents[1]).exp() if evaluated else kernel
    inputs = [*first, inverse, mean, *roots]
    close(call(*inputs), plain(kernel, inverse, mean, covariance))
    inputs = [value.detach().requires_grad_() for value in inputs]
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


def test_exponents_stay_in_float64_on_the_way(generator):
    """Close points far from zero: exponents of 10⁴ that cancel, whose values in float32 would be wrong."""
    left, right = 100.0 + 0.01 * normal(generator, 3, 1, 20), 100.0 + 0.01 * normal(generator, 3, 1, 8)
    ones = [torch.ones_like(part) for part in (left, right)]
    left = torch.cat([left, -0.5 * left.square(), ones[0]], -2)
    right = torch.cat([right, ones[1], -0.5 * right.square()], -2)
    inverse, mean = normal(generator, 8, 8).tril().float(), normal(generator, 8, 2).float()
    results = []
    for dtype in (torch.float32, torch.float64):
        coordinates = left.clone().requires_grad_()
        kernel = Exponents(coordinates, right, dtype)
        value = project(kernel, inverse.to(dtype), mean.to(dtype), None).mean
        results.append((value, *torch.autograd.grad(value.double().sin().sum(), coordinates)))
    (low, slope), (high, exact) = results
    assert low.dtype == torch.float32 and slope.dtype == torch.float64
    torch.testing.assert_close(low.double(), high, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope, exact, rtol=1e-4, atol=1e-4 * float(exact.abs().max()))


def test_a_lengthscale_between_clusters_far_apart(generator):
    """Slopes cancel within a cluster, squares of coordinates are large: float32 would be off by a fifth."""
    centres = 20.0 * (2.0 * torch.randint(0, 2, (1, 200), generator=generator) - 1.0)
    x = (centres + 0.01 * normal(generator, 1, 200)).float().double()
    inverse, mean = torch.eye(40), normal(generator, 40, 1)
    weights, found = normal(generator, 2, 200, 1), []
    for dtype in (torch.float32, torch.float64):
        scale = torch.ones((), requires_grad=True)
        scaled, ones = x / scale, torch.ones_like(x)
        left = torch.cat([scaled, -0.5 * scaled.square(), ones], -2)
        right = torch.cat([scaled, ones, -0.5 * scaled.square()], -2)[:, :40]
        kernel = Exponents(left[None].expand(2, -1, -1), right, dtype)
        value = project(kernel, inverse.to(dtype), mean.to(dtype), None).mean
        found += torch.autograd.grad((value * weights).sum(), scale)
    torch.testing.assert_close(*found, rtol=1e-3, atol=0)


@pytest.mark.parametrize("only", range(3))
@pytest.mark.parametrize("name", ["one", "samples and replicas", "samples of w, replicas of all"])
def test_a_gradient_of_one_result(name, only, generator):
    """The others have no upstream gradient."""
    kernel, inverse, mean, covariance = parts(LEADS[name], 3, 4, 2, generator, True)
    root = torch.linalg.cholesky(covariance).requires_grad_()
    inputs = [value.requires_grad_() for value in (kernel, inverse, mean)] + [root]
    ours, theirs = (call(kernel, inverse, mean, root @ root.mT)[only] for call in (project, plain))
    weights = normal(seeded(1), *torch.broadcast_shapes(ours.shape, theirs.shape))
    pulls = [
        torch.autograd.grad((value * weights).sum(), inputs, allow_unused=True, materialize_grads=True)
        for value in (ours, theirs)
    ]
    close(*pulls, 1e-10)


# leading axes of k, R⁻¹, columns, and of fields of two earlier layers
JOINT = {
    "one": ((), (), (), (), ()),
    "the first layer's fields know no samples": ((3,), (), (), (), (3,)),
    "replicas": ((3, 2), (2,), (2,), (2,), (3, 2)),
    "samples of fields alone": ((), (), (), (3,), (3,)),
}
ONWARD, CROSSES = (5, 2), (1, 3)


def joint_parts(leads, spread, generator, points=3, size=4, outputs=2):
    kernel = normal(generator, *leads[0], points, size)
    inverse = normal(generator, *leads[1], size, size).tril()
    roots = normal(generator, *leads[2], 3 if spread else 0, size, size)
    rest = normal(generator, *leads[2], size, sum(ONWARD) + outputs)
    fields = [normal(generator, *leads[3 + k], points, n * size) for k, n in enumerate(CROSSES)]
    return [kernel, inverse, roots, rest, *fields]


def projected(kernel, inverse, roots, rest, *fields):
    forms = roots.shape[-3]
    matrices = (roots @ roots.mT).movedim(-3, -2).flatten(-2)
    columns = Columns(torch.cat([matrices, rest], -1), forms, rest.shape[-1] - sum(ONWARD), ONWARD)
    at = project_columns(kernel, inverse, columns, fields)
    return tuple(
        value for value in (at.mean, at.square, at.forms, *at.crosses, *at.onward) if value is not None
    )


def plainly(kernel, inverse, roots, rest, *fields):
    white = torch.einsum("...mk,...nk->...nm", inverse, kernel)
    onward, mean = rest[..., : sum(ONWARD)], rest[..., sum(ONWARD) :]
    found = [white @ mean, white.square().sum(-1, keepdim=True)]
    if roots.shape[-3]:
        found.append(torch.einsum("...nm,...qmk,...nk->...nq", white, roots @ roots.mT, white))
    for field in fields:
        found.append(torch.einsum("...nqm,...nm->...nq", field.unflatten(-1, (-1, white.shape[-1])), white))
    return *found, *(white @ onward).split(ONWARD, -1)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("name", JOINT)
def test_parts_of_a_joint_distribution(name, spread, generator):
    inputs = joint_parts(JOINT[name], spread, generator)
    ours, theirs = projected(*inputs), plainly(*inputs)
    assert len(ours) == len(theirs) == 6 + spread
    close(ours, theirs)


@pytest.mark.parametrize(
    ("name", "spread"), [("one", False), ("replicas", True), ("samples of fields alone", True)]
)
def test_gradients_of_a_joint_distribution(name, spread, generator):
    inputs = [value.requires_grad_() for value in joint_parts(JOINT[name], spread, generator)]
    assert torch.autograd.gradcheck(projected, inputs, fast_mode=True)


def test_transforms_and_compilers_follow_plain_products(generator):
    """The hand-written gradient is for a processor that runs what it is told."""
    kernel, *rest = parts(LEADS["samples of points"], 6, 4, 2, generator, True)
    expected = project(kernel, *rest)[:3]
    compiled = torch.compile(lambda k: project(k, *rest)[:3], fullgraph=True, backend="eager")
    for result in (torch.vmap(lambda k: project(k, *rest)[:3])(kernel), compiled(kernel)):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", LEADS)
def test_one_covariance_of_all_outputs(name, generator):
    """It gives one column of forms, and gets the gradients of all that it stands for."""
    kernel, inverse, mean, _ = parts(LEADS[name], 5, 4, 3, generator, False)
    covariance = positive_definite(generator, *LEADS[name][3], 1, 4, 4)
    inputs = [part.requires_grad_() for part in (kernel, inverse, mean, covariance)]
    ours, theirs = found(*inputs), plain(*inputs)
    assert ours[2].shape[-1] == 1
    pairs = zip(ours, theirs, strict=True)
    upstream = [normal(generator, *torch.broadcast_shapes(a.shape, b.shape)) for a, b in pairs]
    sides = []
    for values in (ours, theirs):
        total = sum((v * g).sum() for v, g in zip(values, upstream, strict=True))
        *slopes, last = torch.autograd.grad(total, inputs)
        sides.append([*values, *slopes, last + last.mT])  # S is symmetric
    close(*sides, 1e-10)
