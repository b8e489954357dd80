"""Names in code lead to the API: sphinx-codeautolink, fitted to this book.

The package expects a title in every section, and looks methods up by the module that defines their class;
solutions of exercises are sections without a title, and gilib documents names where they are imported from.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_codeautolink import extension
from sphinx_codeautolink.extension.block import CodeBlockAnalyser

import gilib_book


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


def note_origins(app: Sphinx, env: Any) -> None:
    """Make a class, its methods and a function known by the module in which they are defined, too."""
    objects = env.domains["py"].objects
    for name, (_, value) in gilib_book.public_names(gilib_book.gilib()).items():
        if getattr(value, "__module__", "").startswith("gilib.") and hasattr(value, "__qualname__"):
            origin = f"{value.__module__}.{value.__qualname__}"
            for known in [key for key in objects if key == name or key.startswith(f"{name}.")]:
                objects.setdefault(origin + known.removeprefix(name), objects[known]._replace(aliased=True))


def setup(app: Sphinx) -> dict[str, Any]:
    """Before the package reads the names that are documented."""
    extension.CodeBlockAnalyser = Analyser
    app.setup_extension("sphinx_codeautolink")
    app.connect("env-updated", note_origins, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
