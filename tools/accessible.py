"""Repairs of pages: roles and tags of lists where there is none, blanks in links, signs that fonts lack."""

import re
from typing import Any

from sphinx.application import Sphinx

SIGNATURE = re.compile(r"<dl>(\s*<dd><em class=\"(?:sig-param|property)\".*?)</dl>", re.S)
CITED = re.compile(r'(?<=<div) role="list"(?= class="citation-list")| role="doc-biblioentry"')
PRINTED = re.compile(r'(?<=<div class="output )(?:stream|text_plain) .*?</pre>', re.S)
COLUMNS = re.compile(r"\S {2,}\S")
PASSED = "<p>✅</p>"  # hardly a font has this sign
SOLUTION = re.compile(r"(Solution to)(<a [^>]*>) ")


def repaired(body: str) -> str:
    """A page's body: parameters on lines of their own are no definitions, a bibliography is no list.

    Printed columns are marked, since all else that is printed may break into lines.
    """
    body = SOLUTION.sub(r"\1 \2", SIGNATURE.sub(_lines, body))
    body = PRINTED.sub(lambda found: "aligned " * bool(COLUMNS.search(found[0])) + found[0], body)
    return CITED.sub("", body.replace(PASSED, "<p>passed</p>"))


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
