"""Keeps together what a line must not part: number and unit, arrow and names, formula and punctuation."""

import re
from collections import deque
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

UNIT = r"(?:%|(?:nats?|[mµn]?s|[kMG]i?B|ppm)\b)"
SPACE = re.compile(rf"(?<=\d) (?={UNIT}|\d{{3}}\b)|(?<=\w) (?=→ \w)|(?<=\w →) (?=\w)|(?<=Chapter) (?=\d)")
FIRST = re.compile(rf"^ (?={UNIT})")  # the number stands before, pasted or a formula
OPENS = re.compile(r"[(\[“‘]+$")
CLOSES = re.compile(r"[.,;:!?)\]”’%]+|'s\b[.,;:!?)]*|-(?=\w)")
NUMBER = re.compile(r"[\d.]+e-\d+")
CODE = (nodes.literal, nodes.FixedTextElement, nodes.math, nodes.raw, addnodes.desc_signature)


def spaced(text: str, before: str = "") -> str:
    """The text with spaces that do not break around arrows, in `Chapter 3` and before units.

    Before the unit of a number at the end of `before`, too.
    """
    if before[-1:].isdigit():
        text = FIRST.sub("\N{NO-BREAK SPACE}", text)
    return SPACE.sub("\N{NO-BREAK SPACE}", text)


def together(children: list[nodes.Node]) -> list[nodes.Node]:
    """Nodes of a sentence; each formula in one element with brackets before it and punctuation after it."""
    found: list[nodes.Node] = []
    left = deque(children)
    while left:
        node = left.popleft()
        if isinstance(node, nodes.Text):
            node = nodes.Text(spaced(node, found[-1].astext() if found else ""))
        elif isinstance(node, nodes.literal) and NUMBER.fullmatch(node.astext()):
            node["classes"].append("kept")
        elif isinstance(node, nodes.math):
            opens = found and isinstance(found[-1], nodes.Text) and OPENS.search(found[-1])
            closes = left and isinstance(left[0], nodes.Text) and CLOSES.match(left[0])
            kept = [node]
            if node.astext() == r"\square" and found and isinstance(found[-1], nodes.Text):
                found[-1] = nodes.Text(re.sub(" $", "\N{NO-BREAK SPACE}", found[-1]))  # the end of a proof
            if opens:
                text = found.pop()
                found += [nodes.Text(text[: opens.start()])] if opens.start() else []
                kept = [nodes.Text(opens[0]), node]
            if closes:
                text = left.popleft()
                left.extendleft([nodes.Text(text[closes.end() :])] if text[closes.end() :] else [])
                kept.append(nodes.Text(closes[0]))
            if len(kept) > 1:
                node = nodes.inline("", "", *kept, classes=["kept"])
        found.append(node)
    return found


def tidy(parent: nodes.Element) -> None:
    """All sentences below a node, but code and formulas."""
    for child in parent.children:
        if isinstance(child, nodes.Element) and not isinstance(child, CODE):
            tidy(child)
    if isinstance(parent, nodes.TextElement):
        children = together(parent.children)
        parent.clear()
        parent.extend(children)


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Before a page is written, and after numbers have been pasted."""
    tidy(doctree)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect it."""
    app.connect("doctree-resolved", resolve, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
