"""Repairs of pages: what is no list loses the role or the tag of one, no link begins with a blank."""

import re
from typing import Any

from sphinx.application import Sphinx

SIGNATURE = re.compile(r"<dl>(\s*<dd><em class=\"(?:sig-param|property)\".*?)</dl>", re.S)
CITED = ' role="doc-biblioentry"'
SOLUTION = re.compile(r"(Solution to)(<a [^>]*>) ")


def repaired(body: str) -> str:
    """A page's body: parameters on lines of their own are no definitions, a bibliography is no list."""
    body = SOLUTION.sub(r"\1 \2", SIGNATURE.sub(_lines, body))
    return body.replace('<div role="list" class="citation-list">', '<div class="citation-list">').replace(
        CITED, ""
    )


def _lines(match: re.Match[str]) -> str:
    lines = match[1].replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")
    return f'<span class="sig-lines">{lines}</span>'


def repair(app: Sphinx, docname: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Before a page is written."""
    if "body" in context:
        context["body"] = repaired(context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect it."""
    app.connect("html-page-context", repair)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
