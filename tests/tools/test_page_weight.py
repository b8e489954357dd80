"""What pages weigh and how they are read aloud: icons, scripts, fonts and repairs, on pieces of them."""

from pathlib import Path
from types import SimpleNamespace

import pydata_sphinx_theme
import pytest
from fontTools.ttLib import TTFont

import accessible
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


SIGNATURE = """<dt class="sig"><span>f</span>(<dl>
<dd><em class="sig-param"><span>x</span></em>,</dd>
<dd><em class="sig-param"><span>y</span></em>,</dd>
</dl>

)</dt>"""


def test_parameters_are_lines_and_no_definitions():
    body = accessible.repaired(SIGNATURE)
    assert "<dl>" not in body and "<dd>" not in body and "</dl>" not in body
    assert body.count('<span class="sig-line">') == 2
    assert body.count("<span") == body.count("</span>")


DEFINED = '<dl class="simple">\n<dt>a</dt><dd>b</dd>\n</dl>', "<dl>\n<dt>a</dt><dd><p>b</p></dd>\n</dl>"
CITED = '<div{} class="citation-list">\n<div class="citation" id="id3"{}>'
LINK = 'Solution to{}<a class="reference internal" href="#ex">{}Exercise 1</a>'
PRINTED = '<div class="output {}stream highlight-myst-ansi"><div class="highlight"><pre>{}</pre></div></div>'
REPAIRED = {
    "definitions": (DEFINED[0], DEFINED[0]),
    "definitions of paragraphs": (DEFINED[1], DEFINED[1]),
    "a bibliography": (CITED.format(' role="list"', ' role="doc-biblioentry"'), CITED.format("", "")),
    "a link begins with a word": (LINK.format("", " "), LINK.format(" ", "")),
    "printed columns": (PRINTED.format("", "a  1\nbc 2"), PRINTED.format("aligned ", "a  1\nbc 2")),
    "sentences": (PRINTED.format("", "a sentence,\n    and more"),) * 2,
    "a passed page": ("<td><p>✅</p></td>", "<td><p>passed</p></td>"),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_what_is_repaired_and_what_stays(name):
    body, repaired = REPAIRED[name]
    assert accessible.repaired(body) == repaired
