"""Lighter pages: what a page needs of the theme's icons, its scripts, MathJax and the end tags of cells.

The theme brings every icon twice, as a script of 1.5 MB that draws them and as fonts. Here the fonts draw
them, cut down to the icons that the pages use; only the search loads the index of the search.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx
from sphinx.config import Config

STYLE = Path("_static") / "styles" / "pydata-sphinx-theme.css"
FONTS = Path("_static") / "vendor" / "fontawesome" / "webfonts"
MATHJAX = "mathjax/startup.js"  # loads the parts named in _config.yml, not the menu with its 0.4 MB
ICON = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"[^"]*"\}')
NAME = re.compile(r"fa-[\w-]+")
ESCAPED, LITERAL = re.compile(r"\\([ef][0-9a-f]{3})\b"), re.compile(r"[\ue000-\uf8ff]")
FONT = re.compile(
    r'url\(([^()]*fontawesome/webfonts/fa-[\w-]+)\.woff2\) format\("woff2"\),'
    r'url\([^()]*\.ttf\) format\("truetype"\)'
)
DRAWS = re.compile(r'<script[^>]*src="[^"]*/fontawesome\.js[^"]*"></script>\s*')
SEARCHES = re.compile(
    r'<script[^>]*src="[^"]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>\s*'
)
CELL_ENDS = re.compile(r"</td>(?=\s*<td\b)")  # the next cell ends the one before; the report has thousands

PLAIN = re.compile(r'<span class="(?:pre|w)">([^<]*)</span>')  # words and spaces of code, drawn like the rest
SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.S)
TOKEN = re.compile(r'<span class="[nop]">([^<]*)</span>')  # names, operators and brackets of a signature


def choose_mathjax(app: Sphinx, config: Config) -> None:
    """After the extension that brings MathJax has set its own path."""
    config.mathjax_path = MATHJAX


def lighter_page(text: str, searches: bool) -> str:
    """A page without the script that draws icons and, unless it searches, without those of the search.

    Cells of tables that another cell follows go without an end tag; words of code, and parts of signatures,
    that look like their surroundings go without an element of their own.
    """
    text = PLAIN.sub(r"\1", CELL_ENDS.sub("", DRAWS.sub("", text)))
    text = SIGNATURE.sub(lambda found: TOKEN.sub(r"\1", found[0]), text)
    return text if searches else SEARCHES.sub("", text)


def lighter_style(style: str, names: Iterable[str]) -> str:
    """The theme's style with the named icons only, and with fonts of the kind that `cut` writes."""
    used = set(names)
    style = ICON.sub(lambda rule: rule[0] if used & set(NAME.findall(rule[1])) else "", style)
    return FONT.sub(r'url(\1.woff) format("woff")', style)


def codes(style: str) -> set[int]:
    """The code points of the icons that a style shows, escaped or as they are."""
    return {int(code, 16) for code in ESCAPED.findall(style)} | {ord(sign) for sign in LITERAL.findall(style)}


def cut(font: Path, points: Iterable[int]) -> None:
    """Write the font beside itself as WOFF, with those characters that it has."""
    options = subset.Options()
    options.flavor = "woff"
    options.notdef_outline = True
    small = TTFont(font)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=sorted(set(points)))
    cutter.subset(small)
    subset.save_font(small, str(font.with_suffix(".woff")), options)


def lighten(app: Sphinx, error: Exception | None) -> None:
    """When all pages are written."""
    root = Path(app.outdir)
    if error or not (root / STYLE).is_file():
        return
    names: set[str] = set()
    for page in root.rglob("*.html"):
        text = page.read_text()
        page.write_text(lighter_page(text, searches=page == root / "search.html"))
        names.update(NAME.findall(text))
    for script in (root / "_static").rglob("*.js"):
        if script.name != "fontawesome.js" and "mathjax" not in script.parts:
            names.update(NAME.findall(script.read_text()))
    (root / STYLE).write_text(lighter_style((root / STYLE).read_text(), names))
    points = set().union(*(codes(sheet.read_text()) for sheet in (root / "_static").rglob("*.css")))
    for font in (root / FONTS).glob("*.ttf"):
        cut(font, points)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect them."""
    app.connect("config-inited", choose_mathjax)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
