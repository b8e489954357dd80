"""Formulas of docstrings stay readable as text, are found among words, and become TeX that says the same."""

import inspect
import re

import pytest
import torch

import docstrings
import formulas
import gilib
import gilib_book


@pytest.mark.parametrize(
    ("plain", "tex"),
    [
        ("Σ_n λ_n φ_n φ_nᵀ", r"\sum _{n} λ_{n} φ_{n} φ_{n}^{\mathsf T}"),
        ("V_ij Σ_op", r"V_{ij} \mathrm{Σ}_{op}"),  # a covariance, no sum
        ("W = M + chol(V) E", r"W = M + \operatorname{chol}(V) E"),  # a matrix, no mean
        ("E log P(y | f)", r"\E \log P(y \,|\, f)"),
        ("E_Q[log P(W)]", r"\E _{Q}[\log P(W)]"),
        ("S'⁻¹ √(v_o + ½)", r"S'^{-1} \sqrt{v_{o} + \tfrac12}"),
        ("W̃ ← β₂^t V^(-1/2)", r"\tilde{W} ← β_{2}^{t} V^{-1/2}"),
        ("Gamma(shape, rate)", r"\operatorname{Gamma}(\text{shape}, \text{rate})"),
        ("prior_scale · Id_channels", r"\mathtt{prior\_scale} \cdot \mathrm{Id}_{\text{channels}}"),
        ("κ/N A", r"κ/N\,A"),  # not κ over N A
    ],
)
def test_tex(plain, tex):
    assert formulas.latex("".join(text for _, text in formulas.found(plain, every=True))) == tex


@pytest.mark.parametrize(
    "marked",
    [
        "The posterior's <σ²> is that of N points (here <λ = 1>), and <Λ>'s factor L; a <y ~ N(f, σ²)>.",
        "With <x = (x_1, ..., x_D)> as in Matérn et al., 1960, Eq. 4, the mean <H⁻¹ b>.",
        "Return <log softmax(f)_y> for every point of f(x)_.",
        "The log_pq is <E_Q[log P(W)]>; deviations <1 / (2π ℓ_qd)>; counts <y_o ~ Poisson(mean_o exp(f_o))>.",
        "Log <σ²>, x_std and n_samples, log_pq, the paper's A, e.g. 3 of R.",
    ],
)
def test_formulas_are_found_among_words(marked):
    pieces = formulas.found(marked.replace("<", "").replace(">", ""))
    assert "".join(f"<{text}>" if formula else text for formula, text in pieces) == marked


def test_a_long_formula_breaks_before_what_stands_outside_parentheses():
    assert formulas.role("K = R Rᵀ").count(":math:") == 1
    tex = ["L(a + b + c + d)", "{}= [e", "{}+ f", "{}- g]", "{}+ 123"]
    broken = formulas.role("L(a + b + c + d) = [e + f - g] + 123").split("\u200b")
    assert [part.strip("\\ ") for part in broken] == [f":math:`{part}`" for part in tex]


def test_no_greek_letter_of_a_public_docstring_is_left_in_the_text():
    values = [value for _, value in gilib_book.public_names(gilib).values()]
    values += [member for value in values if inspect.isclass(value) for member in vars(value).values()]
    told = [v for v in values if inspect.isroutine(v) or inspect.isclass(v) or isinstance(v, property)]
    lines = {line for value in told for line in (inspect.getdoc(value) or "").splitlines()}
    parts = [part for line in lines if ">>>" not in line for part in docstrings.IN_BACKTICKS.split(line)[::2]]
    pieces = [piece for part in parts for piece in formulas.found(part)]
    assert sum(formula for formula, _ in pieces) > 500
    assert [text for formula, text in pieces if not formula and re.search(r"[α-ωΓ-Ω]", text)] == []
    for formula, text in pieces:
        assert not formula or formulas.latex(text).count("{") == formulas.latex(text).count("}")


def test_signatures_say_what_a_user_writes():
    def shown(signature, value=None):
        return gilib_book.plain_signature(None, "class", "", value, None, signature, None)[0]

    assert shown("(*args: Any, **kwargs: Any)") == ""
    assert shown("(a: ~typing.Annotated[int, <function check at 0x7f>] | None)") == "(a: int | None)"
    assert shown("(a: tuple[Count, Count] | None = None, b: Positive = 1.0, c: Prior)") == (
        "(a: tuple[int, int] | None = None, b: float = 1.0, c: Prior)"
    )
    assert shown("(a: None | ~gilib.arguments.FloatingType)") == "(a: None | ~torch.dtype)"
    assert shown("(a=<class 'torch.nn.modules.activation.ReLU'>)") == "(a=nn.ReLU)"
    assert shown("(groups=<factory>)", gilib.Adam) == "(groups=dict())"
    recipe = shown("(lower=<factory>, last=<factory>, prior=<factory>)", gilib.recipes.NetworkRecipe)
    assert recipe == "(lower=Factorised(), last=GlobalInducing(), prior=NealPrior(learn=True))"


def test_a_class_lists_what_it_has_from_bases_without_an_entry():
    assert gilib_book.bases(gilib.distributions.Wishart) == [torch.distributions.Distribution]
    assert gilib_book.bases(gilib.LocalInducing) == [gilib.posteriors.InducingPosterior]
    assert gilib_book.bases(gilib.training.Speed) == []
    assert {"log_prob", "rsample"} <= set(gilib_book.taken_in(gilib.distributions.Wishart))
    taken = gilib_book.taken_in(gilib.Linear)  # what Layer documents is there
    assert "start_at" in taken and "sample" not in taken
    assert gilib_book.taken_in(gilib.Adam) == []


def test_a_type_variable_has_no_words_of_pythons():
    lines = ["Type variable."]
    gilib_book.tidy_docstring(None, "data", "", gilib.draws.AnyDrawn, None, lines)
    assert lines == ["A type variable for Drawn and the classes below it."]
