"""Names in code lead to the API: sphinx-codeautolink, fitted to this book.

The package expects a title in every section, and looks methods up by the module that defines their class;
solutions of exercises are sections without a title, and gilib documents names where they are imported from.
Of an earlier build it keeps what it read of reStructuredText alone, and has no links for a page that is
written again though not read again.
"""

import json
from pathlib import Path
from typing import Any

import sphinx_codeautolink
from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink import extension
from sphinx_codeautolink.extension import SphinxCodeAutoLink
from sphinx_codeautolink.extension.block import (
    BUILTIN_BLOCKS,
    CodeBlockAnalyser,
    CodeExample,
    Name,
    SourceTransform,
)
from sphinx_codeautolink.extension.cache import DataCache

import gilib_book

LANGUAGES = {"default", "ipython3", "pycon", "python"}  # of this book; every page is searched for each


class Analyser(CodeBlockAnalyser):
    """Reads sections without a title or a name, too."""

    def visit_section(self, node: nodes.section) -> None:
        """Names are those of the last section that has one."""
        if node["ids"]:
            self.current_refid = node["ids"][0]

    def depart_section(self, node: nodes.section) -> None:
        """Only a section that has a title takes it away."""
        if self.title_stack and any(isinstance(child, nodes.title) for child in node.children):
            self.title_stack.pop()


class Kept(DataCache):
    """What an earlier build has read, of pages in Markdown, too."""

    def read(self) -> None:
        """Of every page that there still is."""
        kept = self.cache_dir / self.cache_filename
        for page, found in json.loads(kept.read_text()).items() if kept.is_file() else ():
            if (self.src_dir / f"{page}.md").is_file():
                self.transforms[page] = [transform(**each) for each in found]


def transform(example: dict[str, Any], names: list[dict[str, Any]], **rest: Any) -> SourceTransform:
    """A block of code and its names, from what was kept of it."""
    return SourceTransform(example=CodeExample(**example), names=[Name(**name) for name in names], **rest)


class Links(SphinxCodeAutoLink):
    """Links in pages, too, that are written again although their own text is as it was."""

    def build_inited(self, app: Sphinx) -> None:
        """Begin."""
        super().build_inited(app)
        app.connect("html-page-context", self.note_written)

    def note_written(
        self, app: Sphinx, docname: str, template: str, context: dict[str, Any], doctree: Any
    ) -> None:
        """A page that is written has lost the links of an earlier build."""
        self.outdated_docs.add(str(Path(docname)))


def note_origins(app: Sphinx, env: Any) -> None:
    """Make a class, its methods and a function known by the module in which they are defined, too."""
    objects = env.domains["py"].objects
    for name, (_, value) in gilib_book.public_names(gilib_book.gilib()).items():
        ours = getattr(value, "__module__", "").split(".")[0] in gilib_book.PACKAGES
        if ours and hasattr(value, "__qualname__"):
            origin = f"{value.__module__}.{value.__qualname__}"
            for known in [key for key in objects if key == name or key.startswith(f"{name}.")]:
                objects.setdefault(origin + known.removeprefix(name), objects[known]._replace(aliased=True))


def setup(app: Sphinx) -> dict[str, Any]:
    """Before the package reads the names that are documented."""
    for language in BUILTIN_BLOCKS.keys() - LANGUAGES:
        del BUILTIN_BLOCKS[language]
    extension.CodeBlockAnalyser, extension.DataCache = Analyser, Kept
    sphinx_codeautolink.SphinxCodeAutoLink = Links
    app.setup_extension("sphinx_codeautolink")
    app.connect("env-updated", note_origins, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
