"""What chapters paste into sentences."""

from pathlib import Path

import pytest
import yaml
from docutils import nodes
from docutils.utils import new_document

import pasted


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
