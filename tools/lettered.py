"""Letters for appendices: A, A.1, Fig. A.1, where the numbering of chapters would go on with 23, 23.1."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

APPENDICES = "book/appendices/"

Number = list[Any] | tuple[Any, ...]


def numbers(env: BuildEnvironment, page: str) -> Iterator[tuple[MutableMapping[str, Any], str]]:
    """Where Sphinx keeps the numbers of a page: of sections, title, figures, equations, exercises."""
    yield from ((env.toc_secnumbers[page], anchor) for anchor in env.toc_secnumbers[page])
    places = [*env.tocs[page].findall(nodes.reference), env.titles[page]]
    yield from ((place.attributes, "secnumber") for place in places if place.get("secnumber"))
    for kind in env.toc_fignumbers.get(page, {}).values():
        yield from ((kind, anchor) for anchor in kind)


def letter(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Put a letter first in all numbers of an appendix, in the order of the contents."""
    pages = [page for page in env.toc_secnumbers if page.startswith(APPENDICES)]
    for k, page in enumerate(pages):
        for kept, key in numbers(env, page):
            number: Number | None = kept[key]
            if number:
                kept[key] = type(number)([chr(ord("A") + k), *number[1:]])
    return pages


def setup(app: Sphinx) -> dict[str, Any]:
    """After Sphinx has numbered all pages."""
    app.connect("env-get-updated", letter, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
