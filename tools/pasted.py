"""Typesets what chapters paste into sentences: a minus is no hyphen, a power of ten no ``e-11``."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
HYPHEN = re.compile(r"(?<![\w.-])-(?=[\d.]|inf\b)")
POWER = re.compile(r"(?<![\w.])([-+]?\d+(?:\.\d+)?)[eE]([+-]?\d+)(?![\w.]\w)")
NO_PROSE = re.compile(
    r"\b(np|torch|numpy)\.\w+\(|\b(tensor|array|Decimal|Fraction)\(|^(None|nan)$|^[\[{(].*[\])}]$"
)
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def typeset(text: str) -> str:
    """A pasted value as a sentence has it: ``-4.4`` with a minus, ``6e-11`` as 6 · 10⁻¹¹."""
    text = POWER.sub(lambda match: f"{match[1]} · 10" + str(int(match[2])).translate(RAISED), text)
    return HYPHEN.sub("\N{MINUS SIGN}", text)


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Before a page is written. What only a program can read stops a build whose warnings are errors."""
    for node in doctree.findall(nodes.inline):
        if "pasted-text" not in node["classes"]:
            continue
        if NO_PROSE.search(node.astext()):
            LOGGER.warning("%r is pasted into a sentence", node.astext(), location=node)
        for text in list(node.findall(nodes.Text)):
            node.replace(text, nodes.Text(typeset(text.astext())))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect it."""
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
