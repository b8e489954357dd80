"""What a line must not part."""

import pytest
from docutils import nodes
from docutils.utils import new_document

import unbroken


@pytest.mark.parametrize(
    ("text", "before", "kept"),
    [
        ("a 90 % interval", "", "a 90_% interval"),
        ("3 nats, 1 nat and 2 natural ones", "", "3_nats, 1_nat and 2 natural ones"),
        ("12 s and 3 splits, 8 GB", "", "12_s and 3 splits, 8_GB"),
        ("50 000 points of 2100", "", "50_000 points of 2100"),
        (" % of them", "37", "_% of them"),
        (" nats", "a word", " nats"),
        (" of 7 s", "37", " of 7_s"),
        ("fac → gi as in Chapter 3 → so", "", "fac_→_gi as in Chapter_3_→_so"),
    ],
)
def test_a_number_keeps_its_unit(text, before, kept):
    assert unbroken.spaced(text, before).replace("\N{NO-BREAK SPACE}", "_") == kept


def sentence(*parts):
    """A paragraph as it is written: kept parts in braces, formulas as $x$."""
    document = new_document("page")
    document += nodes.paragraph("", "", *(nodes.Text(p) if isinstance(p, str) else p for p in parts))
    unbroken.resolve(None, document, "page")

    def written(node):
        if isinstance(node, nodes.math):
            return f"${node.astext()}$"
        inner = "".join(map(written, node.children)) if isinstance(node, nodes.Element) else node.astext()
        kept = isinstance(node, nodes.inline | nodes.literal) and "kept" in node["classes"]
        return f"{{{inner}}}" if kept else inner

    return "".join(map(written, document.children))


def x():
    return nodes.math("", "x")


def test_a_formula_keeps_its_punctuation():
    assert sentence("at ", x(), ", and (", x(), "), ", x()) == "at {$x$,} and {($x$),} $x$"
    assert sentence(x(), "'s root, ", x(), "-th, ", x(), " and") == "{$x$'s} root, {$x$-}th, $x$ and"
    assert sentence(x(), ".") == "{$x$.}"
    assert sentence(", ", x(), ", ", x(), ", ") == ", {$x$,} {$x$,} "


def test_code_stays_and_a_number_with_an_exponent_is_one_word():
    code = nodes.literal("", "90 % (")
    assert sentence("at 5 %", code, x()) == "at 5\N{NO-BREAK SPACE}%90 % ($x$"
    assert sentence("at ", nodes.literal("", "1e-5"), " or ", nodes.literal("", "a-b")) == "at {1e-5} or a-b"
