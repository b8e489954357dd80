"""What becomes of sentences: numbers that chapters paste, and what a line must not part."""

from pathlib import Path

import pytest
import yaml
from docutils import nodes
from docutils.utils import new_document

import pasted
import unbroken


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("-4.4", "−4.4"),
        ("-.5 and +0.009", "−.5 and +0.009"),
        ("6e-11", "6 · 10⁻¹¹"),
        ("-1.5e+03", "−1.5 · 10³"),
        ("−0.81 to -1.9", "−0.81 to −1.9"),
        ("10-20", "10-20"),
        ("five-fold", "five-fold"),
        ("results/uci-1.jsonl", "results/uci-1.jsonl"),
        ("run2e-3.json and 2e-3.json", "run2e-3.json and 2e-3.json"),
        ("v1.2e-1", "v1.2e-1"),
        ("1.2E-5, or -inf", "1.2 · 10⁻⁵, or −inf"),
        ("at 1e-5.", "at 1 · 10⁻⁵."),
        ("2 replicas", "2 replicas"),
    ],
)
def test_numbers_are_typeset_and_words_stay(value, shown):
    assert pasted.typeset(value) == shown


def test_the_book_uses_all_of_its_own_extensions():
    """A list of extensions in the configuration replaces what `local_extensions` adds."""
    sphinx = yaml.safe_load((Path(__file__).parents[2] / "_config.yml").read_text())["sphinx"]
    assert "pasted" in sphinx["local_extensions"]
    assert set(sphinx["local_extensions"]) <= set(sphinx["config"]["extensions"])


def page(text, classes):
    document = new_document("page")
    document += nodes.paragraph("", "", nodes.inline(text, text, classes=classes))
    return document


def test_only_pasted_text_is_touched():
    for classes, shown in (["pasted-text"], "−1"), (["other"], "-1"):
        document = page("-1", classes)
        pasted.resolve(None, document, "page")
        assert document.astext() == shown


@pytest.mark.parametrize(
    "text", ["np.int64(2)", "tensor(0.5)", "3 of array([1])", "None", "nan", "{'a': 1}", "[1, 2]"]
)
def test_what_only_a_program_can_read_is_a_warning(text, monkeypatch):
    seen = []
    monkeypatch.setattr(pasted.LOGGER, "warning", lambda *args, **kwargs: seen.append(args))
    pasted.resolve(None, page("2 of 3", ["pasted-text"]), "page")
    assert not seen
    pasted.resolve(None, page(text, ["pasted-text"]), "page")
    assert [args[1] for args in seen] == [text]


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
