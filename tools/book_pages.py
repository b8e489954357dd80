"""What a page of the book gets when it is built: folded checks, ways to run it, sound links."""

import os
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx

import chapters
import downloads

LINK_BACK = re.compile(r'<a class="viewcode-back" href="([^"#]*)#([^"]+)">\[docs\]</a>')
GITHUB = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(\.git)?/?")
COPY = "cd gilib     # your copy of the repository"  # cloned, where its address is known
COLOUR = re.compile(r"\x1b\[[\d;]*m")
CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt|Exit)\b.*)", re.M)
LONG = 6  # lines of a check that are shown; longer ones fold to the sentence that names them
CELL = re.compile(
    r"^```\{code-cell\} ipython3\n(?P<tags>:tags: \[hide-(?:input|cell)\]\n)?(?P<code>(?!---\n|:).*?)```$",
    re.M | re.S,
)
CHECK = re.compile(r"^# check: (.+(?:\n#   .+)*)\n", re.M)
INDEXED = re.compile(r"(?<=\b[A-Za-z])_\d\b")  # as in f_1


def fold_checks(text: str) -> str:
    """The source; long cells that begin with `# check:`, or are hidden with one, fold to its name."""
    return CELL.sub(_folded, text)


def _folded(match: re.Match[str]) -> str:
    tags, code = match["tags"], match["code"]
    found = CHECK.search(code)
    if not found or (found.start() and "hide-cell" not in (tags or "")):
        return match[0]
    lines = code.count("\n") - found[1].count("\n")
    if not tags and lines <= LONG:
        return match[0]
    name = re.sub(r"\n#  |[\\{}]", "", found[1]).replace('"', "'")
    name = INDEXED.sub(lambda index: chr(ord("₀") + int(index[0][1])), name)
    others = len(CHECK.findall(code)) - 1
    name += f" (and {others} more)" if others else ""
    options = [(tags or ":tags: [hide-input]\n").strip(":\n"), "mystnb:"]
    options += [f'  code_prompt_{kind}: "Check: {name}"' for kind in ("show", "hide")]
    return "\n".join(["```{code-cell} ipython3", "---", *options, "---", code + "```"])


def repository() -> str:
    """The repository's address where it is published, else nothing: the one place where it is configured."""
    return os.environ.get("GILIB_REPOSITORY", "").rstrip("/")


def launch(address: str, page: str) -> str:
    """Where Binder opens a chapter in JupyterLab; nothing for a repository that is not on GitHub.

    Binder builds `.binder/environment.yml`. Colab opens notebooks only, and chapters are Markdown.
    """
    found = GITHUB.fullmatch(address)
    return f"https://mybinder.org/v2/gh/{found[1]}/HEAD?urlpath=lab/tree/{page}.md" if found else ""


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed."""
    source[0] = fold_checks(source[0])
    if repository():
        source[0] = source[0].replace(COPY, f"git clone {repository()} gilib && cd gilib")


def run_line(docname: str, notebook: str, seconds: float | None) -> str:
    """A line below a chapter's title: how to run it, and how long that took."""
    ways = [f'as a <a href="{notebook}" download>notebook</a> where gilib has its extra <code>sklearn</code>']
    ways += [f"with <code>make lab</code>, as <code>{docname}.md</code>"]
    if address := launch(repository(), docname):
        ways.append(f'on <a href="{address}">Binder</a>')
    took = ""
    if seconds is not None:
        took = f" Executing it took {max(1, round(seconds))}&nbsp;s when this page was built."
    return f'<p class="run-chapter">Run this chapter {", or ".join(ways)}.{took}</p>'


def cause(traceback: str, error: str) -> str:
    """The line of a traceback that says what went wrong, or else the kind of the error."""
    return next(iter(reversed(CAUSE.findall(COLOUR.sub("", traceback)))), error)


def banner(cause: str) -> str:
    """What stands first on the page of a chapter that failed; `tools/book.py` reads it there."""
    return (
        '<div class="admonition error"><p class="admonition-title">This chapter failed when it was built</p>'
        f'<p class="chapter-failed">{escape(cause)}</p><p>A cell stopped with this error. What it and all '
        "cells below it compute is missing here: numbers in sentences, figures and tables.</p></div>"
    )


def offer(app: Sphinx, docname: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """A button at the top of a chapter that downloads it as a notebook; better snippets for the search."""
    if docname == "search":
        app.add_js_file("search.js")
    page = Path(app.srcdir) / f"{docname}.md"
    if page in chapters.chapters(Path(app.srcdir)) and "header_buttons" in context:
        notebook = Path(app.outdir) / "notebooks" / f"{page.stem}.ipynb"
        notebook.parent.mkdir(exist_ok=True)
        nbformat.write(downloads.notebook(app, docname, doctree), notebook)
        button = {"type": "link", "icon": "fas fa-download", "tooltip": "Download as a notebook"}
        button["url"] = context["pathto"](f"notebooks/{notebook.name}", 1)
        button["label"] = "download-notebook-button"
        context["header_buttons"].append(button)
        if address := launch(repository(), docname):
            launcher = {"type": "link", "icon": "fas fa-rocket", "tooltip": "Open on Binder", "url": address}
            context["header_buttons"].append({**launcher, "label": "launch-binder-button"})
        data = NbMetadataCollector.get_exec_data(app.env, docname) or {}
        line = "" if docname == app.config.root_doc else run_line(docname, button["url"], data.get("runtime"))
        if not data.get("succeeded", True):
            line = banner(cause(data["traceback"], data["error"]))
        context["body"] = context["body"].replace("</h1>", f"</h1>{line}", 1)


def drop_dead_links_back(app: Sphinx, error: Exception | None) -> None:
    """Source pages link back to what the reference documents, and to nothing else."""
    if error:
        return

    @cache
    def known(page: Path) -> set[str]:
        return set(re.findall(r'id="([^"]+)"', page.read_text())) if page.is_file() else set()

    for page in (Path(app.outdir) / "_modules").rglob("*.html"):

        def sound(link: re.Match[str], folder: Path = page.parent) -> str:
            return link[0] if link[2] in known((folder / link[1]).resolve()) else ""

        page.write_text(LINK_BACK.sub(sound, page.read_text()))


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect them."""
    app.connect("source-read", read)
    app.connect("html-page-context", offer, priority=900)
    app.connect("build-finished", drop_dead_links_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
