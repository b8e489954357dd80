"""Every name of the API leads to a part of the book that exists, and other names to pages that are read."""

import re
from collections import Counter
from io import BytesIO
from pathlib import Path

import pytest

import derivations
import gilib
import gilib_book
import inventories

PUBLIC = {name: room for name, (room, _) in gilib_book.public_names(gilib).items()}
ROOMS = derivations.table()
PLACES = [place for room in ROOMS.values() for place in (room.place, *room.names.values())]
PAGES = sorted((derivations.ROOT / "book" / "api").glob("*.md"))


def test_the_table_has_every_room_and_nothing_that_is_not_public():
    assert set(ROOMS) == set(PUBLIC.values())
    there = {(room, name.rpartition(".")[2]) for name, room in PUBLIC.items()}
    named = {(room, name) for room, found in ROOMS.items() for name in found.names}
    assert named - there == set(), "renamed or moved? one line of book/api/derived.txt each"
    assert {label for place in PLACES for label in place.labels} - set(derivations.labels()) == set()


def test_no_line_names_two_parts_that_are_called_the_same():
    text = "\n".join(page.read_text() for page in set(derivations.labels().values()))
    title = dict(re.findall(r"^\(([\w-]+)\)=\n+#+ (.+)$", text, re.M))
    for labels in (place.labels for place in PLACES):
        assert len({title.get(name, name) for name in labels}) == len(labels), labels


def test_what_is_said_to_be_shown_is_there():
    labels, missing = derivations.labels(), []
    for name, room in PUBLIC.items():
        place, word = derivations.where(room, name), re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
        texts = {label: labels[label].read_text() for label in place.labels} if place.verb == "shown" else {}
        missing += [(name, label) for label, text in texts.items() if not word.search(text)]
    assert missing == []


def test_every_room_is_on_one_page_and_every_page_on_the_landing_page():
    shown = Counter(room for page in PAGES for room in re.findall(r"\{gilib-room\} (\w+)", page.read_text()))
    assert shown == Counter(set(PUBLIC.values()))
    landing = (derivations.ROOT / "book" / "api.md").read_text()
    assert sorted(re.findall(r"\{ref\}`(api-[\w-]+)`", landing)) == [f"api-{page.stem}" for page in PAGES]


def test_a_name_has_its_own_place_or_that_of_its_room_and_nonsense_is_named():
    table = derivations.parse("# note\n\n[layers] derived a b\nGP shown c\n[data] see d\n")
    assert table["layers"].place.sentence() == "Derived in :ref:`a`, :ref:`b`."
    assert table["layers"].names["GP"].sentence() == "Shown in :ref:`c`."
    assert table["data"].place.sentence() == "See :ref:`d`." and table["data"].names == {}
    with pytest.raises(ValueError, match=r"line 2 must be 'Name derived\|shown\|see label ...', got 'GP c'"):
        derivations.parse("[layers] derived a\nGP c")
    with pytest.raises(ValueError, match=r"line 1: GP stands before the first \[room\]"):
        derivations.parse("GP shown c")


NAMES = inventories.__file__ and Path(inventories.__file__).parents[1] / "book" / "inventories" / "names.txt"


def test_sphinx_reads_what_is_written(tmp_path):
    inventory = pytest.importorskip("sphinx.util.inventory")
    mapping = inventories.write(NAMES, tmp_path)
    url, path = mapping["torch"]
    read = inventory.InventoryFile.load(BytesIO(Path(path).read_bytes()), url, lambda base, page: base + page)
    entry = read["py:class"]["torch.Tensor"]
    assert "https://docs.pytorch.org/docs/stable/tensors.html#torch.Tensor" in tuple(entry)


def test_a_malformed_line_is_named():
    with pytest.raises(ValueError, match="line 2 of the names must be 'role name page'"):
        inventories.parse("[python https://example.org/]\nclass int")
