"""Which route is taken, what it may cost in memory, and what is refused before any work."""

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from gilib.convolution import Windows, autocorrelation, fastest_route
from gilib.convolution.spectral import fast_length
from tests.support import normals, refusals


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


@pytest.mark.parametrize("route", ["spectral", "convolution", "patches"])
@pytest.mark.parametrize(
    ("boundary", "pixels", "count", "stride"),
    [("circular", 32, 60, 1), ("zero", 32, 60, 2), ("zero", 4, 1000, 1)],
)
def test_memory_beyond_inputs_and_results(route, boundary, pixels, count, stride):
    """At most three times the inputs, forward and backward; all patches would be nine times x alone."""
    x = torch.randn(count, 16, pixels, pixels, requires_grad=True)
    y = torch.randn(count, 16, pixels // stride, pixels // stride, requires_grad=True)
    with Peak() as memory:
        values = autocorrelation(x, y, 3, boundary=boundary, route=route, stride=stride)
        gradients = torch.autograd.grad(values, (x, y), [torch.ones_like(value) for value in values])
    results = sum(part.nbytes for part in (*values, *gradients))
    inputs = x.nbytes + y.nbytes
    assert inputs < memory.peak  # at least both gradients were seen
    assert memory.peak - results - inputs < 3 * inputs  # views of the inputs count too


@pytest.mark.parametrize(("count", "channels", "pixels"), [(20, 32, 4), (1, 32, 32)])
@pytest.mark.parametrize("boundary", ["circular", "zero"])
def test_memory_where_moments_are_larger_than_images(count, channels, pixels, boundary):
    """Three times the inputs, and the moments twice more."""
    x, y = (torch.randn(count, channels, pixels, pixels, requires_grad=True) for _ in range(2))
    precision, size = torch.rand(count).requires_grad_(), 9 * channels
    upstream = torch.ones(size, size), torch.ones(size, channels)
    with Peak() as memory:
        values = autocorrelation(x, y, 3, precision, boundary=boundary)
        gradients = torch.autograd.grad(values, (x, y, precision), upstream)
    moments, inputs = sum(value.nbytes for value in values), x.nbytes + y.nbytes
    results = moments + sum(gradient.nbytes for gradient in gradients)
    assert memory.peak - results - inputs < 3 * inputs + 2 * moments


@pytest.mark.parametrize("route", ["spectral", "convolution", "patches"])
def test_memory_does_not_grow_with_the_sets_that_share_images(route):
    """One set of images, three sets of weights: gradients are summed as they come."""
    x, y = (torch.randn(40, 8, 32, 32, requires_grad=True) for _ in range(2))
    precision = torch.rand(3, 40).requires_grad_()
    with Peak() as memory:
        values = autocorrelation(x, y, 3, precision, route=route)
        gradients = torch.autograd.grad(values, (x, y, precision), [torch.ones_like(v) for v in values])
    results = sum(part.nbytes for part in (*values, *gradients))
    inputs = x.nbytes + y.nbytes
    assert memory.peak - results - inputs < 3 * inputs


def test_fast_lengths():
    assert [fast_length(n) for n in (1, 2, 3, 10, 11, 34, 44, 57)] == [1, 2, 4, 10, 12, 36, 48, 60]


X, Y = normals(4, 2, 6, 5), normals(4, 3, 6, 5, seed=1)
REFUSED = {
    "even kernel": (lambda: autocorrelation(X, Y, 2), r"even kernel has no centre, got kernel_size \[2, 2\]"),
    "no kernel": (lambda: autocorrelation(X, Y, 0), "kernel_size must be an integer of at least 1, got 0"),
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
