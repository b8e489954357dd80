"""Plain-text docstrings become reStructuredText that says the same, and their formulas TeX."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
import torch

import docstrings
import experiments
import formulas
import gilib
import gilib_book

ROOT = Path(gilib.__file__).resolve().parents[1]


def test_markup_outside_backticks_is_literal():
    assert docstrings.escape("For |z| <= 6 and N* points, `a|b*c` stays, noise_ too") == (
        r"For \|z\| <= 6 and N\* points, `a|b*c` stays, noise\_ too"
    )
    assert docstrings.escape("log_pq of w_o") == "log_pq of :math:`w_{o}`"
    assert docstrings.escape("in_features: D.") == r"in_features: \D.", "no list"


def test_indented_equations_become_line_blocks():
    equations = ["    s = |z|,    E normal     (Eq. 4)", "    t = s"]
    lines = ["Gamma.", "", *equations, "", "More |z|.", "", "Args:", "    z: `[S]` of |z|."]
    block = [
        "   | :math:`\\displaystyle s = |z|`,\u2003:math:`\\displaystyle E` normal\u2003(Eq. 4)",
        "   | :math:`\\displaystyle t = s`",
    ]
    after = [r"More \|z\|.", "", "Args:", r"    z: `[S]` of \|z\|."]
    assert docstrings.tidy(lines) == ["Gamma.", "", ".. rst-class:: formula", "", *block, "", *after]


@pytest.mark.parametrize("kept", [[r".. math:: x \sim U,", "          |y| * 2"], [">>> f(*x) | g", "a*b"]])
def test_directives_and_examples_stay_as_they_are(kept):
    assert docstrings.tidy(["One.", "", *kept, "", "After |z|."]) == ["One.", "", *kept, "", r"After \|z\|."]


@pytest.mark.parametrize("package", [gilib, experiments], ids=lambda package: package.__name__)
def test_public_methods_have_docstrings_or_inherit_them(package):
    own = package.__name__
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{own}.")]
    modules = [importlib.import_module(name) for name in names if name != "gilib.experiments"]
    kinds = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    bare = [
        f"{kind.__name__}.{name}"
        for kind in kinds
        if kind.__module__.startswith(own) and not kind.__name__.startswith("_")
        for name, value in vars(kind).items()
        if not name.startswith("_") and name not in inspect.get_annotations(kind)  # a function as a field
        if inspect.isroutine(value) or isinstance(value, property)
        if getattr(value, "__module__", own).startswith(own)
        if not (inspect.getdoc(getattr(kind, name)) or f" {name}:" in kind.__doc__)  # or among attributes
    ]
    assert kinds and bare == []


def test_what_the_library_cites_is_in_the_bibliography():
    """By first author and year: `Ober & Aitchison, 2021`; sources of data are in THIRD_PARTY.md."""
    cited = re.compile(r"([A-Z]\w+)(?:-\w+)?(?: et al\.|(?:, [A-Z][\w-]+)* & [A-Z]\w+)(?:, | \()(\d{4})")
    code = [path for path in (ROOT / "gilib").rglob("*.py") if "data" not in path.parts]
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in code)
    found = {name.lower().replace("á", "a") + year for name, year in cited.findall(text)}
    known = re.findall(r"^@\w+\{([a-z]+\d{4})", (ROOT / "book" / "references.bib").read_text(), re.M)
    assert len(found) > 30 and found - set(known) == set()


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
