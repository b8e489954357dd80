"""Arguments are as their annotations say, or refused by name where they are given."""

import inspect
import math
import re
from dataclasses import dataclass, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Union, get_args, get_origin, get_type_hints

import pytest
import torch

import gilib
import gilib_book
from gilib import kernels, likelihoods, models, recipes, training
from gilib.arguments import Checked, checked

X, Y = torch.linspace(-1.0, 1.0, 12)[:, None].expand(12, 3).contiguous(), torch.ones(12, 2)
NAN = math.nan
KNOWN = 96  # functions and classes that check their arguments: more may come, and none may be lost


def wrong(hint):
    """Values that an annotation does not take."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        rest = [part for part in parts if part is not NoneType]
        return wrong(rest[0]) if len(rest) == 1 else []
    if kind is Annotated:
        return [value for value in ("a", NAN, True, 2.5, 0, -1) if refuses(parts[1], value)]
    plain = {bool: ["no", 1], int: [2.5, "a"], float: ["a", NAN], torch.Tensor: [3], torch.Generator: [0]}
    own = str(getattr(kind or hint, "__module__", "")).startswith("gilib") and isinstance(hint, type)
    protocol = getattr(hint, "_is_protocol", False)
    return [object()] if own and not protocol else [3] if kind is tuple else plain.get(hint, [])


def refuses(check, value):
    try:
        check(value, "it")
    except (TypeError, ValueError):
        return True
    return False


def annotated():
    """Every public function and class that checks its arguments, argument by argument."""
    left_out = ("gilib.baselines.laplace", "likelihood")  # under `torch.no_grad`; a name of several kinds
    for name, (_, value) in gilib_book.public_names(gilib).items():
        kind = inspect.isclass(value) and issubclass(value, Checked)
        if name in left_out or not (kind or (inspect.isfunction(value) and hasattr(value, "__wrapped__"))):
            continue
        source = value if is_dataclass(value) else value.__init__ if kind else value
        hints = get_type_hints(source, include_extras=True)
        for argument in inspect.signature(value).parameters:
            if bads := wrong(hints.get(argument)) if argument not in left_out else []:
                yield pytest.param(value, argument, bads, id=f"{name}, {argument}")


ANNOTATED = list(annotated())


@pytest.mark.parametrize(("call", "name", "bads"), ANNOTATED)
def test_an_argument_that_is_not_as_its_annotation_is_named_before_all_else(call, name, bads):
    for bad in bads:
        with pytest.raises(
            (TypeError, ValueError), match=re.escape(name) + r".* must |unknown " + re.escape(name)
        ):
            call(**{name: bad})


def test_no_function_has_lost_its_check():
    assert len({id(case.values[0]) for case in ANNOTATED}) >= KNOWN


def net():
    return models.mlp(3, (4,), 2, inducing_points=X[:5])


def draw():
    return net().draw(2)


def train(**settings):
    return gilib.recommended("network", steps=2, num_inducing=5).train(X, Y, **settings)


def fit(**settings):
    return gilib.fit(net(), gilib.Gaussian(), X, Y, steps=1, **settings)


def elbo(**settings):
    return gilib.elbo(draw(), gilib.Gaussian(0.1), X, Y, num_data=12, **settings)


# call, the argument that is wrong, its values: in methods, sequences, functions without a check
VALUES = [
    (likelihoods.PerOutputGaussian, "noise_variance", ([1.0, "a"], [-1.0])),
    (gilib.Adam, "betas", ((0.9,), (0.9, "a"))),
    (train, "seed", (None, "a", 2.5)),
    (train, "classes", (2.5, "3", 0)),
    (elbo, "kl_weight", ("a", None, NAN)),
]
KINDS = [
    (recipes.NetworkRecipe, "hidden", (3, "a", None)),
    (recipes.ProcessRecipe, "kernels", (kernels.RBF(), (1,))),
    (training.Checkpoint, "path", (3, None)),
    (gilib.Adam, "groups", (None, [], "a")),
    (likelihoods.PerOutputGaussian, "noise_variance", (None, "a", 1.0)),
    (gilib.load, "path", (3, None)),
    (lambda x: gilib.record(draw(), x), "x", (3, [1.0])),
    (elbo, "per_point", ("no",)),
    (fit, "progress", ("no",)),
]


def cases(table, error):
    every = [(call, name, bad) for call, name, bads in table for bad in bads]
    return [pytest.param(*case, error, id=f"{case[1]}={case[2]!r:.20}") for case in every]


@pytest.mark.parametrize(
    ("call", "name", "bad", "error"), [*cases(VALUES, ValueError), *cases(KINDS, TypeError)]
)
def test_what_is_wrong_is_named_where_it_is_given(call, name, bad, error):
    with pytest.raises(error, match=re.escape(name) + r".* must be ") as caught:
        call(**{name: bad})
    assert caught.traceback[-1].path.parent.name == "gilib"  # an error of ours, not one of torch


def test_parts_of_a_reader_are_asked_for_the_fields_of_gilib_alone():
    @dataclass(frozen=True)
    class Own(training.LinearDecay):
        slope: float = 1.0

    assert Own(slope="steep").slope == "steep"
    with pytest.raises(ValueError, match="start must be"):
        Own(start=NAN)


def test_a_checked_function_is_still_itself():
    assert gilib.predict.__name__ == "predict" and "num_samples" in gilib.predict.__doc__
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        checked(lambda word: word)(colour=1)
