"""Repairs of what Sphinx writes, on pieces of it."""

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


def test_definitions_stay():
    for body in (
        '<dl class="simple">\n<dt>a</dt><dd>b</dd>\n</dl>',
        "<dl>\n<dt>a</dt><dd><p>b</p></dd>\n</dl>",
    ):
        assert accessible.repaired(body) == body


def test_a_bibliography_is_no_list_without_items():
    body = '<div role="list" class="citation-list">\n<div class="citation" id="id3" role="doc-biblioentry">'
    assert "role" not in accessible.repaired(body)


def test_a_link_begins_with_a_word():
    title = 'Solution to<a class="reference internal" href="#ex"> Exercise 1</a>'
    assert accessible.repaired(title) == 'Solution to <a class="reference internal" href="#ex">Exercise 1</a>'


def test_printed_columns_are_marked_and_sentences_are_not():
    printed = (
        '<div class="output stream highlight-myst-ansi"><div class="highlight"><pre>{}</pre></div></div>'
    )
    for text, marked in ("a  1\nbc 2", True), ("a sentence,\n    and more", False):
        assert ("output aligned stream" in accessible.repaired(printed.format(text))) == marked


def test_a_passed_page_says_so_in_letters():
    assert accessible.repaired("<td><p>✅</p></td>") == "<td><p>passed</p></td>"
