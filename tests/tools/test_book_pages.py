"""What is done to a chapter's source before it is parsed, and of the package that links names in code."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx.domains.python import ObjectEntry

import book_pages
import code_links
import gilib

LINES = "assert True\n" * 8


def cell(code, options=""):
    return f"```{{code-cell}} ipython3\n{options}{code}```\n"


def test_a_long_check_folds_to_its_name():
    text = book_pages.fold_checks(cell(f'# check: "all" is {{well}}\n{LINES}'))
    assert text.splitlines()[:6] == [
        "```{code-cell} ipython3",
        "---",
        "tags: [hide-input]",
        "mystnb:",
        "  code_prompt_show: \"Check: 'all' is well\"",
        "  code_prompt_hide: \"Check: 'all' is well\"",
    ]
    assert text.endswith(f'---\n# check: "all" is {{well}}\n{LINES}```\n')


NAMED = [
    ("Check: one (and 1 more)", f"# check: one\n{LINES}\n# check: two\n{LINES}"),
    ("Check: f₁ of log_pq and x_12", f"# check: f_1 of log_pq and x_12\n{LINES}"),
    ("Check: one, and so on", f"# check: one, and\n#   so on\n# not this\n{LINES}"),
]


@pytest.mark.parametrize(("name", "code"), NAMED)
def test_a_name_is_one_sentence_and_says_how_many_checks_there_are(name, code):
    assert f'"{name}"' in book_pages.fold_checks(cell(code))


@pytest.mark.parametrize("tag", ["hide-input", "hide-cell"])
def test_a_hidden_check_shows_its_name(tag):
    """That of a hidden cell stands anywhere in it."""
    before = "x = 1\n" * (tag == "hide-cell")
    for code in ("# check: one\nassert True\n", f"{before}# check: one\nassert x\n"):
        text = book_pages.fold_checks(cell(code, f":tags: [{tag}]\n"))
        assert ":tags:" not in text and f"\ntags: [{tag}]\n" in text and "Check: one" in text


def test_all_else_stays():
    short = "# check: one, and\n#   so\n" + "assert True\n" * 5
    for code in (
        "# check: short\nassert True\n",
        short,
        f"x = 1\n{LINES}",
        f"x = 1\n# check: later\n{LINES}",
    ):
        assert book_pages.fold_checks(cell(code)) == cell(code)
    text = cell(f"# check: one\n{LINES}", ":tags: [nbval-check-output]\n")
    assert book_pages.fold_checks(text) == text


def test_a_link_back_to_nothing_goes(tmp_path):
    (tmp_path / "book" / "api").mkdir(parents=True)
    (tmp_path / "book" / "api" / "training.html").write_text('<dt id="gilib.fit">')
    (tmp_path / "_modules" / "gilib").mkdir(parents=True)
    page = tmp_path / "_modules" / "gilib" / "loop.html"
    link = '<a class="viewcode-back" href="../../book/api/{}.html#gilib.{}">[docs]</a>'
    links = [link.format("training", "fit"), link.format("training", "no"), link.format("gone", "fit")]
    page.write_text(" and ".join(links))
    book_pages.drop_dead_links_back(SimpleNamespace(outdir=tmp_path), None)
    assert page.read_text() == f"{links[0]} and  and "


def test_binder_opens_chapters_of_a_repository_on_github():
    expected = "https://mybinder.org/v2/gh/someone/gilib/HEAD?urlpath=lab/tree/book/chapters/priors.md"
    for address in ("https://github.com/someone/gilib", "https://github.com/someone/gilib.git"):
        assert book_pages.launch(address, "book/chapters/priors") == expected
    assert book_pages.launch("https://example.org/someone/gilib", "book/chapters/priors") == ""
    assert book_pages.launch("", "book/chapters/priors") == ""


def test_the_line_that_says_how_to_run_a_chapter(monkeypatch):
    monkeypatch.delenv("GILIB_REPOSITORY", raising=False)
    line = book_pages.run_line("book/chapters/priors", "../../notebooks/priors.ipynb", 11.6)
    assert '<a href="../../notebooks/priors.ipynb" download>notebook</a>' in line
    assert "<code>make lab</code>" in line and "<code>book/chapters/priors.md</code>" in line
    assert "Executing it took 12&nbsp;s" in line and "Binder" not in line
    assert "Executing" not in book_pages.run_line("book/chapters/priors", "priors.ipynb", None)
    monkeypatch.setenv("GILIB_REPOSITORY", "https://github.com/someone/gilib/")
    line = book_pages.run_line("book/chapters/priors", "priors.ipynb", None)
    assert '<a href="https://mybinder.org/v2/gh/someone/gilib/HEAD?' in line


def test_the_address_to_clone_is_the_repository_where_it_is_known(monkeypatch):
    clone = "git clone https://github.com/a/b gilib && cd gilib"
    for address, expected in ("", book_pages.COPY), ("https://github.com/a/b/", clone):
        monkeypatch.setenv("GILIB_REPOSITORY", address)
        source = [(Path(__file__).parents[2] / "book" / "intro.md").read_text()]
        book_pages.read(SimpleNamespace(), "book/intro", source)
        assert f"\n{expected}\nmake book" in source[0]


def analyse(*sections):
    document = new_document("/book/page.md")
    document += sections
    settings = {"source_dir": "/book", "global_preface": [], "custom_blocks": {}, "concat_default": True}
    settings |= {"default_highlight_lang": "none", "warn_default_parse_fail": False}
    reader = code_links.Analyser(document, **settings)
    document.walkabout(reader)
    return reader


def test_a_section_without_title_and_name_is_read():
    """It used to take away a title that was not there."""
    code = [nodes.literal_block(text=text, language="python") for text in ("import gilib", "gilib.fit")]
    bare = nodes.section("", nodes.section("", code[1]))
    found = analyse(nodes.section("", nodes.title(text="Title"), code[0], ids=["title"]), bare)
    assert [transform.example.ref_id for transform in found.source_transforms] == ["title", "title"]
    assert found.title_stack == []
    assert [name.code_str for name in found.source_transforms[1].names] == ["gilib.fit"]


def test_methods_are_known_by_the_module_that_defines_their_class():
    entry = ObjectEntry("book/api/networks", "gilib.Network.draw", "method", False)
    objects = {"gilib.Network.draw": entry}
    env = SimpleNamespace(domains={"py": SimpleNamespace(objects=objects)})
    code_links.note_origins(SimpleNamespace(), env)
    origin = f"{gilib.Network.__module__}.{gilib.Network.draw.__qualname__}"
    assert objects == {"gilib.Network.draw": entry, origin: entry._replace(aliased=True)}


def test_what_was_read_of_a_page_is_kept(tmp_path):
    """In Markdown, too; of pages that are gone, nothing."""
    for name in ("page.md", "gone.md"):
        (tmp_path / name).touch()
    code = nodes.literal_block(text="import gilib\ngilib.fit", language="python")
    found = analyse(nodes.section("", nodes.title(text="Title"), code, ids=["title"]))
    first, second = (code_links.Kept(str(tmp_path), str(tmp_path)) for _ in range(2))
    first.transforms = {name: found.source_transforms for name in ("page", "gone")}
    first.write()
    (tmp_path / "gone.md").unlink()
    second.read()
    assert second.transforms == {"page": found.source_transforms}


def test_pages_that_are_written_again_get_their_links():
    links = code_links.Links()
    links.note_written(SimpleNamespace(), "book/page", "page.html", {}, None)
    assert links.outdated_docs == {"book/page"}
