"""What makes pages lighter: icons, scripts and fonts, by examples of the theme's own making."""

from pathlib import Path
from types import SimpleNamespace

import pydata_sphinx_theme
import pytest
from fontTools.ttLib import TTFont

import page_weight

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
PAGE = """<script defer="" src="../_static/scripts/fontawesome.js?digest=1"></script>
<script src="../_static/doctools.js"></script>
<script src="../_static/searchtools.js"></script>
<script src="../_static/language_data.js"></script>
<script src="../searchindex.js"></script>
<i class="fas fa-download"></i>"""


@pytest.fixture(scope="module")
def style():
    return (THEME / "styles" / "pydata-sphinx-theme.css").read_text()


def test_a_page_keeps_the_scripts_that_it_needs():
    assert "searchindex" in (searching := page_weight.lighter_page(PAGE, searches=True))
    reading = page_weight.lighter_page(PAGE, searches=False)
    for text in (searching, reading):
        assert "fontawesome" not in text and "doctools" in text and "fa-download" in text
    assert not any(name in reading for name in ("searchtools", "language_data", "searchindex"))


WORD = '<code><span class="pre">a</span><span class="w"> </span><span class="o">+</span></code>'
SIGN = '<dt class="sig py"><span class="n"><span class="pre">x</span></span><span class="p">:</span></dt>'
ROW = '<tr><td class="a">1</td><td>2</td>\n<td></td></tr><tr><td>3</td></tr>'
LIGHTER = {
    WORD: '<code>a <span class="o">+</span></code>',
    SIGN: '<dt class="sig py">x:</dt>',
    ROW: '<tr><td class="a">1<td>2\n<td></td></tr><tr><td>3</td></tr>',  # no end where a cell follows
}


@pytest.mark.parametrize(("text", "expected"), LIGHTER.items())
def test_words_of_code_parts_of_signatures_and_cells_are_lighter(text, expected):
    assert page_weight.lighter_page(text, searches=False) == expected


def test_the_style_keeps_used_icons_and_all_else(style):
    light = page_weight.lighter_style(style, {"fa-download", "fa-xmark"})
    assert ".fa-download:before" in light and ".fa-xmark:before" in light
    assert ".fa-trash:before" in style and ".fa-trash:before" not in light
    assert ".fa-solid" in light and ".bd-article" in light
    assert len(light) < len(style) - 50_000
    assert light.count(".woff)") == 3 and ".ttf)" not in light
    assert page_weight.lighter_style(light, {"fa-download", "fa-xmark"}) == light


def test_icons_are_found_escaped_and_as_they_are():
    assert page_weight.codes('a{content:"\\f019"} b{--icon:"\uf05a"} c{content:"\\2191"}') == {0xF019, 0xF05A}


def test_a_font_is_cut_to_its_icons(tmp_path):
    whole = THEME / "vendor" / "fontawesome" / "webfonts" / "fa-solid-900.ttf"
    font = tmp_path / whole.name
    font.write_bytes(whole.read_bytes())
    page_weight.cut(font, {0xF019, 0xF002, 0xE999})
    small = font.with_suffix(".woff")
    assert small.stat().st_size < 5000
    assert set(TTFont(small).getBestCmap()) == {0xF019, 0xF002}


def test_a_site_is_made_lighter_once_and_again(tmp_path, style):
    (tmp_path / page_weight.STYLE).parent.mkdir(parents=True)
    (tmp_path / page_weight.STYLE).write_text(style)
    for name in ("index.html", "search.html"):
        (tmp_path / name).write_text(PAGE)
    app = SimpleNamespace(outdir=str(tmp_path))
    page_weight.lighten(app, None)
    first = {path: path.read_text() for path in tmp_path.rglob("*.*")}
    page_weight.lighten(app, None)
    assert first == {path: path.read_text() for path in tmp_path.rglob("*.*")}
    assert "searchindex" in (tmp_path / "search.html").read_text()
    assert "searchindex" not in (tmp_path / "index.html").read_text()


def test_a_build_that_failed_is_left_alone(tmp_path):
    (tmp_path / "index.html").write_text(PAGE)
    page_weight.lighten(SimpleNamespace(outdir=str(tmp_path)), RuntimeError())
    assert (tmp_path / "index.html").read_text() == PAGE
