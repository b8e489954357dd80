"""Plain-text docstrings become reStructuredText that says the same."""

import docstrings


def test_markup_outside_backticks_is_literal() -> None:
    assert docstrings.escape("For |z| <= 6 and N* points, `a|b*c` stays, noise_ too") == (
        r"For \|z\| <= 6 and N\* points, `a|b*c` stays, noise\_ too"
    )
    assert docstrings.escape("log_pq of w_o") == "log_pq of :math:`w_{o}`"


def test_a_letter_alone_is_no_list() -> None:
    assert docstrings.escape("in_features: D.") == r"in_features: \D."


def test_indented_equations_become_line_blocks() -> None:
    lines = [
        "Gamma.",
        "",
        "    s = |z|,    E normal     (Eq. 4)",
        "    t = s",
        "",
        "More |z|.",
        "",
        "Args:",
        "    z: `[S]` of |z|.",
    ]
    assert docstrings.tidy(lines) == [
        "Gamma.",
        "",
        ".. rst-class:: formula",
        "",
        "   | :math:`\\displaystyle s = |z|`,\u2003:math:`\\displaystyle E` normal\u2003(Eq. 4)",
        "   | :math:`\\displaystyle t = s`",
        "",
        r"More \|z\|.",
        "",
        "Args:",
        r"    z: `[S]` of \|z\|.",
    ]


def test_directives_stay_as_they_are() -> None:
    lines = ["Toy.", "", r".. math:: x \sim U,", r"          |y| * 2", "", "After |z|."]
    assert docstrings.tidy(lines) == [*lines[:5], r"After \|z\|."]


def test_examples_stay_as_they_are() -> None:
    lines = ["One.", "", ">>> f(*x) | g", "a*b", "", "After *it*."]
    assert docstrings.tidy(lines) == ["One.", "", ">>> f(*x) | g", "a*b", "", r"After \*it\*."]
