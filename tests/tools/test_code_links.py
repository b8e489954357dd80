"""What is changed of the package that links names in code."""

from types import SimpleNamespace

from docutils import nodes
from docutils.utils import new_document
from sphinx.domains.python import ObjectEntry

import code_links
import gilib


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
