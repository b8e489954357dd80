"""Offline link targets: what the list says is what Sphinx reads."""

from io import BytesIO
from pathlib import Path

import pytest

import inventories

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
