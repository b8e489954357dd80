"""A chapter as a notebook to take away: its cells as they were executed, its text as the page has it.

The text comes from the page's resolved tree, so that numbers are pasted in, references resolved and equations
numbered, and is written as the Markdown that any Jupyter shows. What leads to another page is plain text.
"""

import base64
import html
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from nbformat import NotebookNode, v4
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx_design.dropdown import dropdown_main, dropdown_title
from sphinx_exercise.nodes import exercise_enumerable_node, solution_node
from sphinx_exercise.utils import get_node_number

SPECIAL = re.compile(r"[\\`*_$<\[\]]")
MACRO = re.compile(r"\\([A-Za-z]+)")
RECORD = "application/papermill.record/"  # what `glue` leaves in a cell for the page
UNSEEN = (nodes.comment, nodes.Invisible, nodes.raw, nodes.system_message)
ABOUT = """*From the book “{title}”. It runs where gilib is installed from its checkout with
`{install}`, with that environment as the kernel. The package `experiments`, which
most chapters import, is part of the checkout, and on no package index.*"""


def notebook(app: Sphinx, docname: str, tree: nodes.document) -> NotebookNode:
    """The executed chapter; `tree` is its page's, resolved."""
    executed = nbformat.read(Path(app.outdir).parent / "jupyter_execute" / f"{docname}.ipynb", as_version=4)
    with suppress(KeyError):  # a chapter that failed is not kept, and the build has its outputs itself
        kept = get_cache(app.config.nb_execution_cache_path)
        executed = kept.merge_match_into_notebook(executed, cell_meta=())[1]
    from gilib.optional import INSTALL  # with torch, which executing chapters does without

    page = Page(app)
    about = ABOUT.format(
        title=app.config.html_title or app.config.project, install=INSTALL.format(extra="sklearn")
    )
    cells, done = [v4.new_markdown_cell(about)], 0
    text: list[str] = []

    def flush() -> None:
        if text:
            cells.append(v4.new_markdown_cell("\n\n".join(text), **page.attached()))
            text.clear()

    for piece in chain(page.pieces(tree), [None]):  # at the end come cells that the page lacks
        if isinstance(piece, str):
            text += [piece] * bool(piece)
            continue
        flush()
        index = piece["cell_index"] if piece else len(executed.cells) - 1
        cells += [cell_of(cell) for cell in executed.cells[done : index + 1] if cell.cell_type == "code"]
        done = index + 1
        if piece and (shown := page.shown(piece)):
            bundles = [
                output.data for output in cells[-1].outputs if "text/markdown" in output.get("data", {})
            ]
            text += [] if bundles else [shown]
            for bundle in bundles:
                bundle["text/markdown"], shown = shown, ""
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {
        key: executed.metadata[key] for key in ("kernelspec", "language_info") if key in executed.metadata
    }
    return v4.new_notebook(cells=cells, metadata=kernel)


def cell_of(executed: NotebookNode) -> NotebookNode:
    """A code cell, folded as on the page, as is every check; without what only the page wants."""
    tags = set(executed.metadata.get("tags", []))
    cell = v4.new_code_cell(executed.source, execution_count=executed.execution_count)
    hidden = {
        "source_hidden": bool(tags & {"hide-input", "hide-cell", "remove-input", "remove-cell"})
        or executed.source.startswith("# check:"),
        "outputs_hidden": bool(tags & {"hide-output", "hide-cell"}),
    }
    cell.metadata = {"tags": sorted(tags)} if tags else {}
    if any(hidden.values()):
        cell.metadata["jupyter"] = {key: value for key, value in hidden.items() if value}
    cell.outputs = [output for output in executed.outputs if _seen(output)]
    return cell


def _seen(output: NotebookNode) -> bool:
    for_page = [name.startswith(RECORD) for name in output.get("data", {})]
    return output.get("name") != "stderr" and not (for_page and all(for_page))


class Page:
    """Writes the parts of a page's tree as Markdown."""

    def __init__(self, app: Sphinx) -> None:
        self.app = app
        self.builder: Any = app.builder  # knows the numbers of the page that is being written
        self.macros = (app.config.mathjax3_config or {}).get("tex", {}).get("macros", {})
        self.pictures: dict[str, dict[str, str]] = {}

    def attached(self) -> dict[str, dict[str, dict[str, str]]]:
        """The pictures of what was written since the last call."""
        found, self.pictures = self.pictures, {}
        return {"attachments": found} if found else {}

    def pieces(self, node: nodes.Element) -> Iterator[str | nodes.container]:
        """Text, and the containers of code cells, in order."""
        for child in node.children:
            if is_cell(child):
                yield child
            elif isinstance(child, nodes.Element) and any(child.findall(is_cell)):
                yield from self.pieces(child)
            else:
                yield self.block(child)

    def shown(self, cell: nodes.container) -> str:
        """What a cell shows as text of the page: captions, and Markdown that it has made."""
        outputs = [part for part in cell.children if part.get("nb_element") == "cell_code_output"]
        return "\n\n".join(filter(None, (self.blocks(part) for part in outputs)))

    def blocks(self, node: nodes.Element) -> str:
        """The blocks in a node."""
        return "\n\n".join(filter(None, (self.block(child) for child in node.children)))

    def block(self, node: nodes.Node) -> str:
        """A block with its own marks: of a list, a table, a box."""
        match node:
            case nodes.image():
                return self.picture(node)
            case nodes.literal_block():
                language = node.get("language", "")
                return "" if "output" in node["classes"] else f"```{language}\n{node.astext().rstrip()}\n```"
            case nodes.math_block():
                return self.display(node)
            case nodes.title() | dropdown_title():
                return self.title(node)
            case nodes.caption():
                return self.numbered("figure", node)
            case nodes.bullet_list():
                return "\n".join(self.item("- ", item) for item in node.children)
            case nodes.enumerated_list():
                first = node.get("start", 1)
                return "\n".join(self.item(f"{k}. ", item) for k, item in enumerate(node.children, first))
            case nodes.definition_list_item():
                head, *rest = node.children
                return f"**{self.inline(head)}**\n\n" + "\n\n".join(map(self.blocks, rest))
            case nodes.table():
                return self.table(node)
            case nodes.block_quote():
                return quoted(self.blocks(node))
            case dropdown_main() | solution_node():
                head, *rest = node.children
                body = "\n\n".join(filter(None, map(self.block, rest)))
                return f"<details>\n<summary>{self.plain(head)}</summary>\n\n{body}\n\n</details>"
            case nodes.Admonition():
                return quoted(self.blocks(node))
            case nodes.transition():
                return "---"
            case nodes.TextElement() | nodes.Text():
                return self.inline(node)
            case _ if isinstance(node, UNSEEN):
                return ""
        return self.blocks(node)

    def title(self, node: nodes.title) -> str:
        """A heading with the section's number, or the bold first line of a box."""
        text, parent = self.inline(node), node.parent
        if isinstance(parent, exercise_enumerable_node):
            return f"**Exercise {get_node_number(self.app, parent, 'exercise')}{text}**"
        if not isinstance(parent, nodes.section):
            return self.numbered("table", node) if isinstance(parent, nodes.table) else f"**{text}**"
        depth, outer = 0, parent
        while outer is not None:
            depth, outer = depth + isinstance(outer, nodes.section), outer.parent
        numbers = self.builder.secnumbers
        number = numbers.get(f"#{parent['ids'][0]}", numbers.get("", ()) if depth == 1 else ())
        return " ".join(filter(None, ("#" * depth, ".".join(map(str, number)), text)))

    def numbered(self, kind: str, node: nodes.Element) -> str:
        """A caption with its number."""
        found = self.builder.fignumbers.get(kind, {})
        number = next((found[key] for key in node.parent["ids"] if key in found), None)
        mark = self.app.config.numfig_format[kind] % ".".join(map(str, number)) if number else ""
        return f"**{mark}.** {self.inline(node)}" if mark else self.inline(node)

    def item(self, mark: str, item: nodes.Element) -> str:
        """An item of a list."""
        return mark + self.blocks(item).replace("\n", "\n" + " " * len(mark)).replace(
            " " * len(mark) + "\n", "\n"
        )

    def table(self, node: nodes.table) -> str:
        """A table with bars."""
        rows = [
            [" ".join(self.blocks(entry).split()) for entry in row.children]
            for row in node.findall(nodes.row)
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        head = [self.title(child) for child in node.children if isinstance(child, nodes.title)]
        return "\n\n".join([*head, "\n".join(lines)])

    def inline(self, node: nodes.Node) -> str:
        """Text with its marks; a link where it leads out of the book."""
        match node:
            case nodes.Text():
                text = SPECIAL.sub(r"\\\g<0>", " ".join(re.split(r"\s*\n\s*", str(node))))
                return text.replace("|", r"\|") if in_table(node) else text
            case nodes.math():
                return f"${self.tex(node)}$"
            case nodes.math_block():
                return f"\n\n{self.display(node)}\n\n"
            case nodes.literal():
                text = node.astext().replace("|", r"\|") if in_table(node) else node.astext()
                return f"`` {text} ``" if "`" in text else f"`{text}`"
            case nodes.image():
                return self.picture(node)
            case _ if isinstance(node, UNSEEN):
                return ""
        inner = "".join(map(self.inline, node.children))
        match node:
            case nodes.emphasis():
                return f"*{inner}*"
            case nodes.strong():
                return f"**{inner}**"
            case nodes.reference() if "://" in node.get("refuri", ""):
                return f"[{inner}]({node['refuri']})"
        return inner

    def plain(self, node: nodes.Element) -> str:
        """Text inside of HTML, where Markdown has no marks and Jupyter typesets equations still."""
        if isinstance(node, nodes.math):
            return f"${html.escape(self.tex(node))}$"
        if isinstance(node, UNSEEN):
            return ""
        return (
            html.escape(str(node))
            if isinstance(node, nodes.Text)
            else "".join(map(self.plain, node.children))
        )

    def tex(self, node: nodes.Element) -> str:
        """An equation without the book's own macros, which a notebook does not know."""
        text = MACRO.sub(lambda found: self.macros.get(found[1], found[0]), node.astext().strip())
        return text.replace(r"\|", r"\Vert ").replace("|", r"\vert ") if in_table(node) else text

    def display(self, node: nodes.math_block) -> str:
        """An equation of its own, with its number."""
        number = get_node_equation_number(self, node) if node.get("number") else ""  # type: ignore[arg-type]
        tag = rf" \tag{{{number}}}" if number else ""
        return f"$$\n{self.tex(node)}{tag}\n$$"

    def picture(self, node: nodes.image) -> str:
        """A picture, which the cell brings along; not one that a code cell shows itself."""
        path = Path(self.app.srcdir) / node["uri"]
        if not path.is_file() or in_cell(node):
            return ""
        kind = f"image/{path.suffix.removeprefix('.').replace('svg', 'svg+xml')}"
        self.pictures[path.name] = {kind: base64.b64encode(path.read_bytes()).decode()}
        return f"![{node.get('alt', '')}](attachment:{path.name})"


def is_cell(node: nodes.Node) -> bool:
    """Whether a node is the place of a code cell."""
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def _above(node: nodes.Node) -> Iterator[nodes.Node]:
    while node := node.parent:
        yield node


def in_cell(node: nodes.Node) -> bool:
    """Whether a node belongs to the outputs of a code cell."""
    return any(map(is_cell, _above(node)))


def in_table(node: nodes.Node) -> bool:
    """Whether a bar in the node's text would end a table's cell."""
    return any(isinstance(above, nodes.table) for above in _above(node))


def quoted(text: str) -> str:
    """A box."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))
