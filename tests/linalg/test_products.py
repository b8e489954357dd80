"""Products: the same numbers by both libraries, and which of them is asked."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from gilib.linalg import onednn, products
from gilib.linalg.onednn import by_onednn
from gilib.linalg.products import add_matmul, matmul, product
from tests.support import seeded
from tests.support.onednn import has_onednn, here
from tests.support.oracles import normal

BIG = (260, 96, 180)  # 2.1 · 2²¹ multiplications: more than twice the least


@pytest.fixture
def asked(monkeypatch):
    """As on a processor that torch's library runs at half width; what oneDNN was asked for."""
    shapes = []
    own = onednn.onednn

    def noted(left, right):
        shapes.append((*left.shape, right.shape[-1]))
        return own(left, right)

    here(monkeypatch)
    monkeypatch.setattr(products, "onednn", noted)
    yield shapes
    onednn.runs_at_half_width.cache_clear()


def pair(*leads, sizes=BIG, dtype=torch.float32):
    left = normal(seeded(1), *leads[0], *sizes[:2])
    right = normal(seeded(2), *leads[-1], *sizes[1:])
    return left.to(dtype), right.to(dtype)


def close(found, left, right, times=1.0):
    """Within the rounding of sums of 96 products and of the last step: 98 ε/2 |left| |right| at the most."""
    exact = times * (left.double() @ right.double())
    bound = 98 * 2.0**-24 * abs(times) * (left.double().abs() @ right.double().abs()) + 1e-6
    assert ((found.double() - exact).abs() <= bound).all()


@given(
    st.sampled_from([((), ()), ((3,), ()), ((), (2,)), ((3, 2), (2,)), ((3, 1), (1, 2))]),
    st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(1, 4)),
    st.integers(0, 10**6),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_products_of_any_shape(leads, sizes, seed):
    left = normal(seeded(seed), *leads[0], *sizes[:2]).double()
    right = normal(seeded(seed + 1), *leads[1], *sizes[1:]).double()
    torch.testing.assert_close(product(left, right), left @ right, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(matmul(left, right), left @ right, rtol=1e-13, atol=1e-13)


LAYOUTS = {
    "one by one": (matmul, [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((3, 1), (1, 2)), ((), (3,))], None),
    "on top of each other": (matmul, [((3,), ()), ((2, 3), (1, 1)), ((3,), (1, 1))], 0),
    "beside each other": (product, [((1,), (3,))], 2),
}


@has_onednn
@pytest.mark.parametrize(("name", "leads"), [(name, leads) for name in LAYOUTS for leads in LAYOUTS[name][1]])
def test_samples_of_one_matrix_are_merged_and_all_go_to_onednn(asked, name, leads):
    multiply, _, axis = LAYOUTS[name]
    left, right = pair(*leads)
    count = torch.broadcast_shapes(*leads).numel()
    found = multiply(left, right)
    close(found, left, right)
    assert asked == ([BIG] * count if axis is None else [(*BIG[:axis], count * BIG[axis], *BIG[axis + 1 :])])
    assert found.is_contiguous() or multiply is product
    if axis == 0:
        asked.clear()
        columns = left.mT.contiguous().mT  # which would have to be copied
        close(matmul(columns, right), left, right)
        assert asked == [BIG] * count


def laid_out(matrix, how):
    """The same numbers elsewhere in memory."""
    if how == "columns":
        return matrix.mT.contiguous().mT
    if how == "part":
        wide = matrix.new_zeros(matrix.shape[0], matrix.shape[1] + 7)
        wide[:, 3:-4] = matrix
        return wide[:, 3:-4]
    if how == "part of columns":
        return laid_out(matrix.mT, "part").mT
    if how == "every other":
        return matrix.repeat_interleave(2, 1)[:, ::2]
    return matrix


class Met(TorchDispatchMode):
    """Notes the calls of oneDNN, which meets dense matrices alone: of others it is a hundred times slower."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "_linear_pointwise" in func.name():
            assert all(value.is_contiguous() or value.mT.is_contiguous() for value in args[:2])
            self.calls += 1
        return func(*args, **(kwargs or {}))


@has_onednn
@pytest.mark.parametrize(
    ("of_left", "of_right"),
    [
        ("rows", "columns"),
        ("columns", "part"),
        ("part", "part of columns"),
        ("part of columns", "every other"),
        ("every other", "rows"),
    ],
)
def test_matrices_lie_in_memory_as_they_like(asked, of_left, of_right):
    left, right = pair((), ())
    left, right = laid_out(left, of_left), laid_out(right, of_right)
    with Met() as met:
        close(matmul(left, right), left, right)
        total = left.new_ones(180, 260).mT
        close(add_matmul(total, left, right) - 1.0, left, right)
        room = left.new_full((260, 190), torch.nan)
        close(add_matmul(room[:, 5:-5], left, right, beta=0.0), left, right)
    assert room.isnan().sum() == 2600
    assert asked == [BIG] * 3 and met.calls == 3


@has_onednn
@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("large", [True, False])
def test_weights_and_what_was_there(asked, lead, large):
    left, right = pair(lead, sizes=BIG if large else (5, 4, 3))
    out = left.new_full((*left.shape[:-1], right.shape[-1]), torch.nan)
    assert add_matmul(out, left, right, weight=2.5, beta=0.0) is out
    close(out, left, right, 2.5)
    for beta in (0.0, 1.0, -3.0):
        total = torch.ones_like(out)
        assert add_matmul(total, left, right, beta=beta) is total
        close(total - beta, left, right)
    assert len(asked) == (4 * torch.Size(lead).numel() if large else 0)


@has_onednn
@pytest.mark.parametrize("leads", [((), ()), ((2,), (2,)), ((2,), ()), ((), (2,))])
def test_gradients_of_first_and_second_order(asked, leads):
    left, right = pair(*leads)
    weights = normal(seeded(3), *torch.broadcast_shapes(*leads), BIG[0], BIG[2])

    def orders(multiply, dtype):
        a, b = (value.to(dtype).requires_grad_() for value in (left, right))
        loss = (multiply(a, b).square() * weights.to(dtype)).sum()
        first = torch.autograd.grad(loss, (a, b), create_graph=True)
        return [*first, *torch.autograd.grad(first[0].square().sum(), (a, b))]

    found, exact = orders(matmul, torch.float32), orders(torch.matmul, torch.float64)
    assert asked
    for ours, truth in zip(found, exact, strict=True):
        assert (ours.double() - truth).norm() < 1e-5 * truth.norm()


@has_onednn
def test_only_what_a_gradient_needs_is_kept(asked):
    left, right = pair((), ())
    found = matmul(left, right.requires_grad_())
    kept = [value for value in found.grad_fn.saved_tensors if value is not None]
    assert len(kept) == 1 and torch.equal(kept[0], left)
    with torch.no_grad():
        right.add_(1.0)  # as torch has it: not needed any more
    found.sum().backward()
    assert left.grad is None and len(asked) == 2
    close(right.grad, left.mT, torch.ones_like(found))


def dual(left, right):
    with forward_ad.dual_level():
        found = matmul(forward_ad.make_dual(left, torch.ones_like(left)), right)
        return forward_ad.unpack_dual(found).tangent


def batched(left, right):
    """Two gradients at once, of a product that was made before."""
    found = matmul(left.requires_grad_(), right)
    upstream = torch.stack([torch.ones_like(found), found.detach()])
    return torch.autograd.grad(found, left, upstream, is_grads_batched=True)[0]


TRANSFORMS = {
    "vmap": torch.vmap(matmul, (0, None)),
    "grad": torch.func.grad(lambda a, b: matmul(a, b).square().sum()),
    "jvp": lambda a, b: torch.func.jvp(lambda x: matmul(x, b), (a,), (torch.ones_like(a),))[1],
    "linearize": lambda a, b: torch.func.linearize(lambda x: matmul(x, b), a)[1](torch.ones_like(a)),
    "compile": lambda a, b: torch.compile(matmul, fullgraph=True, backend="eager")(a, b),
    "dual": dual,
    "batched gradients": batched,
}


@has_onednn
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_and_compilers_follow_plain_products(asked, name):
    left, right = pair((2,), ())
    found = TRANSFORMS[name](left, right)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "by_onednn", lambda *_: False)
        wanted = TRANSFORMS[name](left, right)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-2)


@has_onednn
def test_what_stays_with_torch(asked, monkeypatch):
    """Small or narrow products, other dtypes, autocast, and matrices that do not fit, with torch's error."""
    assert by_onednn(*pair((), ()))
    assert not by_onednn(*pair((), (), dtype=torch.float64))
    for sizes in ((120, 120, 120), (1000, 8, 1000), (4000, 1000, 7), (7, 1000, 4000)):
        assert not by_onednn(*pair((), (), sizes=sizes))
    left, right = pair((), (), sizes=(150, 110, 150))
    assert by_onednn(left, right) and not by_onednn(left.mT.contiguous().mT, right)
    assert not by_onednn(left, right.to_sparse())
    with torch.autocast("cpu", torch.bfloat16):
        found = matmul(left, right)
    assert found.dtype == torch.bfloat16 and not asked
    for wrong in (left[:, :-1], left.double()):
        with pytest.raises(RuntimeError, match="cannot be multiplied|same dtype"):
            matmul(wrong, right)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not by_onednn(left, right)


@has_onednn
@pytest.mark.parametrize(
    ("change", "half"),
    [
        ({}, True),
        ({"maker": "GenuineIntel"}, False),
        ({"maker": ""}, False),
        ({"family": 25}, False),  # computes with 256 bits at once
        ({"capability": "AVX2"}, False),
        ({"mkl": False}, False),
    ],
)
def test_which_processors_run_at_half_width(monkeypatch, change, half):
    here(monkeypatch, **change)
    assert onednn.runs_at_half_width.__wrapped__() is half


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [(torch.ops, "mkldnn", object()), (onednn, "CPUINFO", Path("/nowhere"))],
    ids=["a torch without the operation", "nothing says what the processor is"],
)
def test_where_something_is_missing(monkeypatch, where, name, value):
    here(monkeypatch)
    monkeypatch.setattr(where, name, value)
    assert onednn.runs_at_half_width.__wrapped__() is False
    onednn.runs_at_half_width.cache_clear()
