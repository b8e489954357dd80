"""Plain-text docstrings become reStructuredText that says the same."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import docstrings
import experiments
import gilib

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
