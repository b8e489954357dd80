"""Moments of windows by every route against explicit patches; which is taken, its memory, benchmarks."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import gilib
from gilib import statistics
from gilib.convolution import Windows, autocorrelation, fastest_route, window_moments
from gilib.convolution.routes import ROUTES
from gilib.convolution.spectral import fast_length
from tests.support import D, assert_equal, normals, refusals
from tests.support.benchmarks import load


@pytest.mark.parametrize(
    ("channels", "outputs", "size", "windows", "route"),
    [
        (32, 32, 32, Windows.of(3, boundary="zero"), "convolution"),
        (16, 16, 16, Windows.of(5), "spectral"),
        (3, 32, 32, Windows.of(3, boundary="zero"), "patches"),
        (32, 32, 8, Windows.of(1, boundary="zero"), "patches"),
        (128, 64, 32, Windows.of(3, stride=2, boundary="zero"), "patches"),
        (16, 64, 32, Windows.of(5, stride=2, boundary="zero"), "convolution"),
    ],
)
def test_the_measured_winner_is_chosen(channels, outputs, size, windows, route):
    x = torch.empty(100, channels, size, size)
    y = torch.empty(100, outputs, *windows.output_size((size, size)))
    assert fastest_route(x, y, windows) == route


def test_where_convolutions_have_no_fast_library_they_are_not_chosen():
    x = y = torch.empty(100, 32, 32, 32)
    windows = Windows.of(3, boundary="zero")
    assert fastest_route(x.double(), y.double(), windows) == "spectral"
    assert fastest_route(x.to("meta"), y.to("meta"), windows) == "spectral"


def test_lags_do_not_meet_around_the_circle():
    """Small images are taken for images among copies of themselves."""
    assert not Windows.of(5, boundary="circular").at_every_pixel((3, 3))
    assert Windows.of(5, boundary="zero").at_every_pixel((3, 3))


class Peak(TorchDispatchMode):
    """The most bytes that tensors made by operations on the way held at one time."""

    def __init__(self):
        super().__init__()
        self.live, self.peak = [], 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, torch.Tensor):
                storage = part.untyped_storage()
                self.live.append((StorageWeakRef(storage), storage.nbytes()))
        self.live = [entry for entry in self.live if not entry[0].expired()]
        self.peak = max(self.peak, sum({ref.cdata: size for ref, size in self.live}.values()))
        return result


SCENES = {  # images, pixels of the outputs, λ, boundary
    "circular": ((60, 16, 32, 32), 32, None, "circular"),
    "strided": ((60, 16, 32, 32), 16, None, "zero"),
    "many small": ((1000, 16, 4, 4), 4, None, "zero"),
    "three sets of weights that share images": ((40, 8, 32, 32), 32, (3, 40), "circular"),
}
LARGE = {  # moments are larger than images
    f"{size[0]} images, {boundary}": (size, size[-1], size[:1], boundary)
    for size in ((20, 32, 4, 4), (1, 32, 32, 32))
    for boundary in ("circular", "zero")
}
CASES = [*((name, route) for name in SCENES for route in ROUTES), *((name, None) for name in LARGE)]


@pytest.mark.parametrize(("name", "route"), CASES)
def test_memory_beyond_inputs_and_results(name, route):
    """At most three times the inputs, and large moments twice more; all patches would take nine times x."""
    size, pixels, lead, boundary = (SCENES | LARGE)[name]
    x, y = torch.randn(size, requires_grad=True), torch.randn(*size[:2], pixels, pixels, requires_grad=True)
    leaves = [x, y] + ([] if lead is None else [torch.rand(lead).requires_grad_()])
    stride = size[-1] // pixels
    with Peak() as memory:
        values = autocorrelation(x, y, 3, *leaves[2:], boundary=boundary, route=route, stride=stride)
        gradients = torch.autograd.grad(values, leaves, [torch.ones_like(value) for value in values])
    moments, inputs = sum(value.nbytes for value in values), x.nbytes + y.nbytes
    beyond = memory.peak - moments - sum(gradient.nbytes for gradient in gradients) - inputs
    assert inputs < memory.peak  # at least both gradients were seen
    assert beyond < 3 * inputs + 2 * moments * (name in LARGE)  # views of the inputs count too


def test_fast_lengths():
    assert [fast_length(n) for n in (1, 2, 3, 10, 11, 34, 44, 57)] == [1, 2, 4, 10, 12, 36, 48, 60]


X, Y = normals(4, 2, 6, 5), normals(4, 3, 6, 5, seed=1)
REFUSED = {
    "even kernel": (lambda: autocorrelation(X, Y, 2), r"even kernel has no centre, got kernel_size \[2, 2\]"),
    "kernel": (lambda: autocorrelation(X, Y, "3"), "kernel_size must be an integer or a pair"),
    "stride": (lambda: autocorrelation(X, Y, 3, stride=0), "stride must be an integer of at least 1"),
    "padding": (lambda: autocorrelation(X, Y, 3, padding=(1, -1)), "padding must be an integer of at least"),
    "boundary": (lambda: autocorrelation(X, Y, 3, boundary="mirror"), "unknown boundary 'mirror'"),
    "route": (lambda: autocorrelation(X, Y, 3, route="magic"), "unknown route 'magic'"),
    "small image": (lambda: autocorrelation(X, Y, 9, padding=0), r"\[6, 5\] pixels, padded by \[0, 0\], are"),
    "circular": (lambda: autocorrelation(X, Y, 3, padding=6), "wrap around images .* more than once"),
    "images": (lambda: autocorrelation(X[:3], Y, 3), "x holds 3 images and y 4"),
    "size of y": (lambda: autocorrelation(X, Y[..., 1:], 3), r"y must have one entry for every window, .*O"),
    "empty": (lambda: autocorrelation(X[:0], Y[:0], 3), r"x is empty: its shape is \[0, 2, 6, 5\]"),
    "axes": (lambda: autocorrelation(X[0], Y, 3), r"x must have shape \[..., B, C, H, W\], got \[2, 6, 5\]"),
    "dtype": (lambda: autocorrelation(X, Y.float(), 3), "one dtype on one device, got torch.float64"),
    "half precision": (lambda: autocorrelation(X.bfloat16(), Y.bfloat16(), 3), "x must hold float32 or"),
    "negative precision": (
        lambda: autocorrelation(X, Y, 3, torch.tensor([1.0, 2.0, -1.0, 1.0]).double()),
        "precision must not be negative",
    ),
    "precision": (lambda: autocorrelation(X, Y, 3, torch.ones(3).double()), r"precision must have shape"),
    "lead": (
        lambda: autocorrelation(X.expand(2, 4, 2, 6, 5), Y.expand(3, 4, 3, 6, 5), 3),
        r"leading axes must broadcast, got \[2\] and \[3\]",
    ),
}


test_bad_input = refusals(REFUSED)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="y must be a torch.Tensor, got list"):
        autocorrelation(X, [1.0], 3)


CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def benchmark():
    return load("resnet_step")


@pytest.mark.parametrize("size", [4, 9])
def test_moments_and_gradients_of_the_other_benchmark_agree(size):
    load("autocorrelation").check(size)


def test_bounds_and_gradients_agree(benchmark):
    benchmark.check("SpatialIWPrior", CPU)


def test_every_convolution_takes_the_moments_that_are_put_in_place(benchmark, monkeypatch):
    seen, before = [], statistics.window_moments

    def moments(images, *rest):
        seen.append(tuple(images.shape[-3:]))
        return before(images, *rest)

    monkeypatch.setitem(benchmark.WAYS, "patches", moments)
    problem = benchmark.Problem.of("ScalePrior", 8, 16, torch.float32, CPU)
    noise = problem.net.base_noise(1)
    with pytest.raises(KeyboardInterrupt), benchmark.moments_by("patches"):
        problem.bound(noise)
        raise KeyboardInterrupt
    assert seen == [(3, 16, 16), *[(32, n, n) for n in (16, 16, 8, 8, 4, 4)]]
    problem.bound(noise)
    assert len(seen) == 7 and statistics.window_moments is before


def test_operations_of_convolutions_are_those_that_torch_counts(benchmark):
    """Of a network without residual blocks, where inducing images pass every layer once."""
    images = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    layers = [gilib.Conv2d(3, 4, 3), nn.ReLU(), gilib.Conv2d(4, 5, 3), nn.Flatten(), gilib.Linear(320, 10)]
    net = gilib.Network(images, layers)
    problem = benchmark.Problem(net, images.clone(), torch.arange(6))
    step = problem.stepper()
    with FlopCounterMode(display=False) as counter:
        step()
    counted = {str(kind): value for kind, value in counter.get_flop_counts()["Global"].items()}
    wanted = counted["aten.convolution"] + counted["aten.convolution_backward"]
    assert benchmark.operations(problem)["convolutions"] == pytest.approx(wanted / 1e9)


def explicit(x, y, windows, precision=None):
    """The moments from patches cut out by torch's unfold, [C K, C K] and [C K, O]."""
    above, left = windows.padding
    mode = "circular" if windows.circular else "constant"
    padded = nn.functional.pad(x, (left, left, above, above), mode=mode)
    patches = nn.functional.unfold(padded, windows.kernel, stride=windows.stride)  # [B, C K, windows]
    weighted = patches if precision is None else precision[:, None, None] * patches
    gram = torch.einsum("bin,bjn->ij", weighted, patches)
    return gram, torch.einsum("bin,bon->io", weighted, y.flatten(2))


@st.composite
def cases(draw):
    """Windows, and the shape of images that hold them; half of the time as most layers have them."""
    boundary = draw(st.sampled_from(["circular", "zero"]))
    if draw(st.booleans()):
        kernel, stride = tuple(draw(st.sampled_from([1, 3, 5])) for _ in "hw"), (1, 1)
        padding = tuple(k // 2 for k in kernel)
    else:
        kernel = tuple(draw(st.sampled_from([1, 2, 3, 5])) for _ in "hw")
        stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
        padding = tuple(draw(st.integers(0, k + 1)) for k in kernel)
    size = tuple(max(1, k - 2 * p, p) + draw(st.integers(0, 6)) for k, p in zip(kernel, padding, strict=True))
    windows = Windows(kernel, stride, padding, boundary)
    images, channels, outputs = (draw(st.integers(1, 3)) for _ in range(3))
    return windows, (images, channels, *size), outputs


def tensors(windows, shape, outputs, seed=0):
    x = normals(*shape, seed=seed)
    y = normals(*shape[:-3], outputs, *windows.output_size(shape[-2:]), seed=seed + 1)
    return x, y, normals(*shape[:-3], seed=seed + 2).exp()


def with_gradients(function, parts):
    """Values, and the gradients of a random linear map of them."""
    leaves = [part.clone().requires_grad_() for part in parts]
    values = function(*leaves)
    probes = [normals(*value.shape, seed=7 + k) for k, value in enumerate(values)]
    gradients = torch.autograd.grad(values, leaves, probes)
    assert all(map(torch.equal, leaves, parts)), "what was given is left alone"
    return [*(value.detach() for value in values), *gradients]


def compare(case, route, weighted):
    windows, parts = case[0], tensors(*case)[: 2 + weighted]
    wanted = with_gradients(lambda x, y, *rest: explicit(x, y, windows, *rest), parts)
    found = with_gradients(lambda x, y, *rest: window_moments(x, y, windows, *rest, route=route), parts)
    for ours, theirs in zip(found, wanted, strict=True):
        assert_equal(ours, theirs, 1e-10)


@pytest.mark.parametrize("route", ROUTES)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), weighted=st.booleans())
def test_explicit_patches(route, data, weighted):
    compare(data.draw(cases()), route, weighted)


@pytest.mark.parametrize("boundary", ["circular", "zero"])
@pytest.mark.parametrize("size", [(32, 32), (9, 13), (2, 2)])
def test_many_images_and_frequencies(size, boundary, monkeypatch):
    """More images, frequencies and patches than are worked on at a time."""
    from gilib.convolution import direct, patches, spectral

    monkeypatch.setattr(spectral, "FEWEST", 2)
    for module, name in ((spectral, "CHUNK"), (spectral, "BLOCK"), (direct, "CHUNK"), (patches, "CHUNK")):
        monkeypatch.setattr(module, name, 100)
    for route in ROUTES:
        compare((Windows.of(3, boundary=boundary), (5, 2, *size), 3), route, True)


@pytest.mark.parametrize("route", ROUTES)
def test_leading_axes_broadcast(route):
    """x [S, R, B, ...], y [R, B, ...], precision [B]: what a loop gives, gradients summed."""
    windows = Windows.of(3, boundary="zero")
    x = normals(3, 2, 4, 2, 5, 4)
    y, precision = normals(2, 4, 3, 5, 4, seed=1), normals(4, seed=2).exp()

    def loop(x, y, precision):
        pairs = [[explicit(x[s, r], y[r], windows, precision) for r in range(2)] for s in range(3)]
        return tuple(torch.stack([torch.stack([pair[k] for pair in row]) for row in pairs]) for k in range(2))

    found = with_gradients(
        lambda *parts: window_moments(*parts[:2], windows, parts[2], route), (x, y, precision)
    )
    for ours, theirs in zip(found, with_gradients(loop, (x, y, precision)), strict=True):
        assert_equal(ours, theirs, 1e-10)


@pytest.mark.parametrize("route", ROUTES)
def test_vmap(route):
    windows = Windows.of(3)
    x, y, precision = normals(4, 3, 2, 5, 5), normals(2, 4, 3, 2, 5, 5, seed=1), normals(3, seed=2).exp()

    def moments(x, y):
        return window_moments(x, y, windows, precision, route)

    mapped = torch.func.vmap(moments, in_dims=(0, 1))(x, y)
    for b in range(4):
        for found, wanted in zip(mapped, moments(x[b], y[:, b]), strict=True):
            assert_equal(found[b], wanted)


@pytest.mark.parametrize("boundary", ["circular", "zero"])
def test_second_derivatives_by_transforms(boundary):
    """Of images, outputs and weights; and with a batch between the two derivatives."""
    windows = Windows.of((3, 2), stride=(1, 2), padding=1, boundary=boundary)
    x, y = normals(2, 1, 4, 3), normals(2, 2, *windows.output_size((4, 3)), seed=1)

    def energy(x, y, precision):
        return sum(value.sin().sum() for value in window_moments(x, y, windows, precision))

    def by_patches(*parts):
        return sum(value.sin().sum() for value in explicit(*parts[:2], windows, *parts[2:]))

    parts = (x, y, normals(2, seed=2).exp())
    for k in range(3):
        wanted = torch.func.jacrev(torch.func.jacrev(by_patches, k), k)(*parts)
        assert_equal(torch.func.jacrev(torch.func.jacrev(energy, k), k)(*parts), wanted, 1e-10)
        assert_equal(torch.func.jacfwd(torch.func.jacrev(energy, k), k)(*parts), wanted, 1e-10)
    batch = normals(3, *x.shape, seed=3)
    slope = torch.func.vmap(torch.func.grad(energy), in_dims=(0, None, None))
    slopes = torch.func.jacrev(lambda x: slope(x, *parts[1:]).square().sum())(batch)
    inner = torch.func.grad(by_patches)
    for found, one in zip(slopes, batch, strict=True):
        wanted = torch.func.grad(lambda x: inner(x, *parts[1:]).square().sum())(one)
        assert_equal(found, wanted, 1e-10)


@pytest.mark.parametrize("precision", [None, normals(4, seed=2).exp(), normals(2, 4, seed=2).exp()])
def test_transforms_broadcast(precision):
    """Their plain products see the axes that operations see."""
    windows = Windows.of(3)
    x, y = normals(3, 2, 4, 2, 5, 4), normals(2, 4, 3, 5, 4, seed=1)

    def energy(x):
        return sum(value.sin().sum() for value in window_moments(x, y, windows, precision))

    leaf = x.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(energy(leaf), leaf)
    assert_equal(torch.func.grad(energy)(x), wanted, 1e-10)


@pytest.mark.parametrize("route", ROUTES)
def test_a_weight_that_underflowed_has_a_finite_gradient(route):
    parts = [part.requires_grad_() for part in tensors(Windows.of(3), (3, 2, 4, 4), 2)]
    with torch.no_grad():
        parts[2][1] = 0.0
    values = window_moments(*parts[:2], Windows.of(3), parts[2], route)
    gradients = torch.autograd.grad(sum(value.sum() for value in values), parts)
    assert all(gradient.isfinite().all() for gradient in gradients) and not gradients[0][1].any()


def test_float32_agrees_with_float64():
    windows = Windows.of(3, boundary="zero")
    x, y, _ = tensors(windows, (20, 8, 12, 12), 4)
    exact = window_moments(x, y, windows)
    for route in ROUTES:
        for single, double in zip(
            window_moments(x.float(), y.float(), windows, None, route), exact, strict=True
        ):
            assert float((single.to(D) - double).norm() / double.norm()) < 2e-6


def test_inputs_that_are_not_contiguous():
    windows = Windows.of(3, boundary="zero")
    x, y, _ = tensors(windows, (4, 2, 6, 5), 3)
    strided = x.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
    for route in ROUTES:
        wanted = with_gradients(lambda *parts, r=route: window_moments(*parts, windows, None, r), (x, y))
        found = with_gradients(lambda *parts, r=route: window_moments(*parts, windows, None, r), (strided, y))
        for ours, theirs in zip(found, wanted, strict=True):
            assert_equal(ours, theirs)
