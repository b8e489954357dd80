"""Specifications of kernels: what they refuse, what they build, sums and products, and files."""

import json

import pytest
import torch

import gilib
from gilib.config import describe, rebuild
from gilib.kernels import (
    RBF,
    ArcCosine,
    DotProduct,
    Kernel,
    KernelProduct,
    KernelSum,
    Matern,
    Periodic,
    White,
    spectral_mixture,
)
from tests.kernels.cases import INPUTS, KERNELS, function, module
from tests.support import D, assert_equal, normals, refusals

VALUES = {
    "one of them 0": (lambda: RBF((1.0, 0.0)), r"lengthscale\[1\] must be a positive finite number, got 0.0"),
    "smoothness": (lambda: Matern(smoothness=2.0), r"one of \(0.5, 1.5, 2.5\), got 2.0"),
    "order 2": (lambda: ArcCosine(2), r"order must be 0 \(steps\) or 1 \(rectifiers\), got 2"),
    "linear bias": (lambda: DotProduct(bias_variance=-1.0), "bias_variance must be a positive .*got -1.0"),
    "periods": (lambda: module(Periodic(period=(1.0, 2.0))), "period must be one number or 3, .* got 2"),
    "components": (lambda: spectral_mixture([1.0, 2.0], [1.0], [1.0]), "argument 2 is shorter"),
    "on no column": (lambda: RBF().on(), r"needs one column or more, and none twice, got \(\)"),
    "on a column twice": (lambda: RBF().on(1, 1), r"none twice, got \(1, 1\)"),
    "on a column that is not there": (lambda: module(RBF().on(0, 3)), r"\(0, 3\) needs them among 0 ... 2"),
    "on a column from the end": (lambda: module(RBF().on(-1)), r"\(-1,\) needs them among 0 ... 2"),
    "on a name": (lambda: module(RBF().on("age")), "names are for estimators that are given a data frame"),
    "on a name that is not there": (
        lambda: (RBF() + RBF().on("age")).numbered(["year", "sex"]),
        r"the kernel is on columns \['age'\], but the columns are \['year', 'sex'\]",
    ),
    "on half a column": (lambda: RBF().on(0.5), r"columns\[0\] must be an integer, got 0.5"),
    "empty sum": (lambda: KernelSum(()), "KernelSum needs at least one kernel"),
    "two lengthscales of three": (lambda: module(RBF((1.0, 2.0))), "number or 3, one for each input, got 2"),
    "inside a layer": (
        lambda: gilib.Network(normals(4, 3), [gilib.GP(3, 1, RBF((1.0, 2.0)))]),
        "layer 0: lengthscale must be one number or 3",
    ),
}
KINDS = {
    "a number in a sum": (lambda: RBF() + 1.0, "a term of a kernel must be a Kernel, got float"),
    "a class in a product": (lambda: RBF() * DotProduct, r"write DotProduct\(\) in place of DotProduct"),
    "a list": (lambda: RBF([1.0, 2.0]), "lengthscale must be a number, or a tuple with one for each input"),
    "an empty tuple": (lambda: RBF(()), "lengthscale must be a number, or a tuple"),
    "a number as a part": (lambda: KernelSum((RBF(), 2)), "parts\\[1\\] must be a Kernel, got int"),
}


test_values_that_do_not_fit = refusals(VALUES)
test_things_of_the_wrong_kind = refusals(KINDS, TypeError)


@pytest.mark.parametrize("name", KERNELS)
def test_a_description_builds_the_same_kernel_again(name):
    text = json.dumps(describe(KERNELS[name]))
    again = rebuild(json.loads(text), Kernel)
    assert again == KERNELS[name] and hash(again) == hash(KERNELS[name])
    x = normals(4, INPUTS)
    assert torch.equal(function(again).gram(x), function(KERNELS[name]).gram(x))


def test_sums_and_products_flatten_and_precede_as_numbers_do():
    a, b, c = RBF(), DotProduct(), Matern()
    assert a + b + c == a + (b + c) == KernelSum((a, b, c))
    assert a * b * c == a * (b * c) == KernelProduct((a, b, c))
    assert a + b * c == KernelSum((a, KernelProduct((b, c))))
    assert (a + b) * c == KernelProduct((KernelSum((a, b)), c))


def test_names_of_columns_become_numbers():
    kernel = RBF().on("b", "a") * Matern() + (RBF().on("b") + White()).on("b", "c")
    wanted = RBF().on(1, 0) * Matern() + (RBF().on(0) + White()).on(1, 2)  # the inner one is of what is left
    assert kernel.numbered(["a", "b", "c"]) == wanted == wanted.numbered(["a", "b", "c"])


def test_two_equal_terms_have_hyper_parameters_of_their_own():
    built = module(RBF() + RBF())
    assert len({id(parameter) for parameter in built.parameters()}) == 4


@pytest.mark.parametrize(("ard", "size"), [(True, INPUTS), (False, 1)])
def test_automatic_relevance(ard, size):
    built = module(RBF(0.5, ard=ard))
    assert built.log["lengthscale"].shape == (size,)
    assert_equal(built.log["lengthscale"].exp().detach(), torch.full((size,), 0.5, dtype=D))
