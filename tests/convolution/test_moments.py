"""Moments of windows against explicit patches, by every route, with gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gilib.convolution import Windows, window_moments
from tests.support import D, assert_equal, normals

ROUTES = ("spectral", "convolution", "patches")


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
