"""Which route is taken, its memory, what is refused; what benchmarks time is the same in all ways."""

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import gilib
from gilib import statistics
from gilib.convolution import Windows, autocorrelation, fastest_route
from gilib.convolution.routes import ROUTES
from gilib.convolution.spectral import fast_length
from tests.support import normals, refusals
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
