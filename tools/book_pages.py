"""What a page of the book gets when it is built: folded checks, a notebook to take away, sound links."""

import re
from pathlib import Path
from typing import Any

import jupytext
from sphinx.application import Sphinx

import chapters

LINK_BACK = re.compile(r'<a class="viewcode-back" href="[^"#]*#([^"]+)">\[docs\]</a>')
LONG = 6  # lines of a check that are shown; longer ones fold to the sentence that names them
CHECK = re.compile(
    r"^```\{code-cell\} ipython3\n(?P<hidden>:tags: \[hide-input\]\n)?"
    r"(?P<code># check: (?P<name>.+(?:\n#   .+)*)\n(?:.*\n)*?)```$",
    re.M,
)


def fold_checks(text: str) -> str:
    """A chapter's source with every long cell that begins with `# check:` folded under its name."""
    return CHECK.sub(_folded, text)


def _folded(match: re.Match[str]) -> str:
    lines = match["code"].count("\n") - match["name"].count("\n")
    if not match["hidden"] and lines <= LONG:
        return match[0]
    name = re.sub(r"\n#  |[\\{}]", "", match["name"]).replace('"', "'")
    others = match["code"].count("\n# check: ")
    name += f" (and {others} more)" if others else ""
    options = ["tags: [hide-input]", "mystnb:"]
    options += [f'  code_prompt_{kind}: "Check: {name}"' for kind in ("show", "hide")]
    return "\n".join(["```{code-cell} ipython3", "---", *options, "---", match["code"] + "```"])


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed."""
    source[0] = fold_checks(source[0])


def offer(app: Sphinx, docname: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """A button at the top of a chapter that downloads it as a notebook; better snippets for the search."""
    if docname == "search":
        app.add_js_file("search.js")
    page = Path(app.srcdir) / f"{docname}.md"
    if page in chapters.chapters(Path(app.srcdir)) and "header_buttons" in context:
        notebook = Path(app.outdir) / "notebooks" / f"{page.stem}.ipynb"
        notebook.parent.mkdir(exist_ok=True)
        notebook.write_text(jupytext.writes(jupytext.read(page), fmt="ipynb"))
        button = {"type": "link", "icon": "fas fa-download", "tooltip": "Download as a notebook"}
        button["url"] = context["pathto"](f"notebooks/{notebook.name}", 1)
        button["label"] = "download-notebook-button"
        context["header_buttons"].append(button)


def drop_dead_links_back(app: Sphinx, error: Exception | None) -> None:
    """Source pages link back to what the reference documents, and to nothing else."""
    reference = Path(app.outdir) / "book" / "api.html"
    if error or not reference.is_file():
        return
    known = set(re.findall(r'id="([^"]+)"', reference.read_text()))
    for page in (Path(app.outdir) / "_modules").rglob("*.html"):
        text = page.read_text()
        page.write_text(LINK_BACK.sub(lambda link: link[0] if link[1] in known else "", text))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect them."""
    app.connect("source-read", read)
    app.connect("html-page-context", offer, priority=900)
    app.connect("build-finished", drop_dead_links_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
