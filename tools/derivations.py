"""Which part of the book is about a name of the API: `book/api/derived.txt`, one line a room or a name.

A line `[room] verb label ...` holds for all names of the room, a line `Name verb label ...` below it for one.
Verbs: `derived` (its formulas), `shown` (in code there), `see` (what it is about). A label is a `(label)=`.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "book" / "api" / "derived.txt"
VERBS = {"derived": "Derived in", "shown": "Shown in", "see": "See"}
LABEL = re.compile(r"^\(([\w-]+)\)=$", re.M)


@dataclass(frozen=True)
class Place:
    """A verb and the labels that it leads to."""

    verb: str
    labels: tuple[str, ...]

    def sentence(self) -> str:
        """As reStructuredText."""
        return f"{VERBS[self.verb]} {', '.join(f':ref:`{label}`' for label in self.labels)}."


@dataclass(frozen=True)
class Room:
    """Where all names of a room are derived, and those that differ."""

    place: Place
    names: dict[str, Place]


def parse(text: str) -> dict[str, Room]:
    """The rooms of the table.

    Raises:
        ValueError: for a line that is not `Name verb label ...`, or a name outside a room.
    """
    rooms: dict[str, Room] = {}
    names: dict[str, Place] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        name, *rest = line.split() or ["#"]
        if name.startswith("#"):
            continue
        if len(rest) < 2 or rest[0] not in VERBS:
            raise ValueError(f"line {number} must be 'Name {'|'.join(VERBS)} label ...', got {line!r}")
        place = Place(rest[0], tuple(rest[1:]))
        if name.startswith("["):
            names = {}
            rooms[name.strip("[]")] = Room(place, names)
        elif names is None:
            raise ValueError(f"line {number}: {name} stands before the first [room]")
        else:
            names[name] = place
    return rooms


@cache
def table() -> dict[str, Room]:
    """The table of the book."""
    return parse(TABLE.read_text())


def where(room: str, name: str) -> Place:
    """The place of a name, by default its room's.

    Raises:
        KeyError: if the table has no such room.
    """
    found = table()[room]
    return found.names.get(name.rpartition(".")[2], found.place)


def labels(book: Path = ROOT / "book") -> dict[str, Path]:
    """Every label of the book, with its page."""
    pages = (page for page in book.rglob("*.md") if not page.parent.name.startswith("."))
    return {label: page for page in pages for label in LABEL.findall(page.read_text())}
