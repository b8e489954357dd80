"""The directive `{thumbnail} LABEL`: a small copy of the figure that a chapter shows under this label.

The figure is made by a chapter when the book is built, so its copy is never out of date.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from PIL import Image
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

FOLDER = Path("_build") / "thumbnails"  # inside the sources: that is where Sphinx looks for images
SIZE = (640, 400)  # pixels, at most: twice what a card shows
logger = logging.getLogger(__name__)


class thumbnail(nodes.General, nodes.Element):  # noqa: N801, docutils names its nodes like this
    """A place where the copy of a figure will be."""


class Thumbnail(SphinxDirective):
    """Leaves a place for the copy: figures are known once all pages are read."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        place = thumbnail(label=self.arguments[0])
        self.set_source_info(place)
        return [place]


def show(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Before a page is written: put copies in their places."""
    for place in list(doctree.findall(thumbnail)):
        figure = figure_of(app.env, place["label"])
        if figure is None:
            logger.warning("no figure has the label %s", place["label"], location=place)
            place.parent.remove(place)
            continue
        uri = copy(Path(app.srcdir), figure["uri"], place["label"])
        app.env.images.add_file(docname, uri)
        place.replace_self(
            nodes.image(uri=uri, candidates={"*": uri}, alt=figure["alt"], classes=["thumbnail"])
        )


def figure_of(env: BuildEnvironment, label: str) -> nodes.image | None:
    """The image of the figure with this label, in whatever chapter; None: there is none."""
    docname, anchor, _ = env.get_domain("std").labels.get(label, ("", "", ""))  # type: ignore[attr-defined]
    figures = env.get_doctree(docname).findall(nodes.figure) if docname else ()
    return next((image for f in figures if anchor in f["ids"] for image in f.findall(nodes.image)), None)


def copy(root: Path, uri: str, name: str) -> str:
    """Write the small copy; its path, relative to the sources."""
    (root / FOLDER).mkdir(parents=True, exist_ok=True)
    target = FOLDER / f"{name}.png"
    with Image.open(root / uri) as picture:
        small = picture.convert("RGB")
    small.thumbnail(SIZE, Image.Resampling.LANCZOS)
    small.quantize(128).save(root / target, optimize=True)
    return target.as_posix()


def setup(app: Sphinx) -> dict[str, Any]:
    """Announce the directive."""
    app.add_node(thumbnail)
    app.add_directive("thumbnail", Thumbnail)
    app.connect("doctree-resolved", show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
