"""Repairs of what Sphinx writes, on pieces of it."""

import pytest

import accessible

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
