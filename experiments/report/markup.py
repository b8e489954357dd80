"""Write HTML elements and sortable tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from experiments.report.columns import Cell


@dataclass(frozen=True)
class Html:
    """HTML that a notebook shows."""

    content: str

    def __repr__(self) -> str:
        """Show the length, because the content would fill a terminal."""
        return f"<{len(self.content)} characters of HTML>"

    def _repr_html_(self) -> str:
        return self.content


def element(name: str, *content: str, **attributes: str) -> str:
    """Return an HTML element with content and non-empty attributes.

    Args:
        name: name of the element.
        content: HTML; use `escape` for text.
        attributes: texts. Underscores in a name become hyphens; those at its end are removed.

    >>> element("td", "1 &lt; 2", class_="is-better", data_key='"')
    '<td class="is-better" data-key="&quot;">1 &lt; 2</td>'
    """
    given = {key.strip("_").replace("_", "-"): value for key, value in attributes.items() if value}
    inside = "".join(f' {key}="{escape(value)}"' for key, value in given.items())
    return f"<{name}{inside}>{''.join(content)}</{name}>"


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    last: Sequence[Sequence[Cell]] = (),
    ids: Sequence[str] = (),
) -> str:
    """Return a table in a scrolling box, which the book's script makes sortable.

    Args:
        header: titles of the columns.
        rows: rows of cells.
        last: rows that stay below all others.
        ids: anchors of the rows.
    """
    rows = list(rows)
    names = ids or [""] * len(rows)
    numeric = {k for row in rows for k, cell in enumerate(row) if cell.key is not None and not cell.kind}
    titles = [
        element("th", escape(title), scope="col", class_="is-number" if k in numeric else "")
        for k, title in enumerate(header)
    ]
    head = element("thead", element("tr", *titles))
    body = element("tbody", *(_row(row, name) for row, name in zip(rows, names, strict=True)))
    foot = element("tfoot", *map(_row, last)) if last else ""
    return element(
        "div", element("table", head, body, foot, class_="sortable"), class_="report-box", tabindex="0"
    )


def _row(cells: Sequence[Cell], name: str = "") -> str:
    return element("tr", *map(_cell, cells), id=name)


def _cell(cell: Cell) -> str:
    shown = escape(cell.text)
    if cell.kind == "command" and shown:
        content = element("details", element("summary", "command"), element("code", shown))
        return element("td", content, class_="is-command")
    content = element("a", shown, href=f"#{cell.link}") if cell.link else shown
    key = "" if cell.key is None or _shows(cell.text, cell.key) else f"{cell.key:.6g}"
    return element("td", content, class_=cell.kind and f"is-{cell.kind}", data_key=key)


def _shows(text: str, key: float) -> bool:
    """Return whether the text begins with the key, perhaps rounded, so that the key can be left out.

    >>> _shows("−1.9", -1.857), _shows("0.30 ± 0.01", 0.3), _shows("5 of 20", 5.0)
    (True, True, True)
    >>> _shows("1 of 2", 0.5), _shows("1,234", 1234.0)
    (False, False)
    """
    found = re.match(r"[+−-]?\d+(?:\.(\d+))?(?![\d,e])", text)
    if found is None:
        return False
    away = abs(float(found[0].replace("−", "-")) - key)
    return away <= 0.5000001 * 10.0 ** -len(found[1]) if found[1] else away == 0.0
