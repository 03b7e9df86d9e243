"""Figures as HTML, for notebooks.

Every text is escaped, including control characters: names come from peers and files.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from careful.errors import shown
from careful.units import cell

#: The escape codes around an alarm (render.tables.alarm).
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"[-+]?[0-9.]+( ±[0-9.]+)?( [KMGT]?i?B)?")


class Grid(NamedTuple):
    """A table that is not drawn yet.

    Attributes:
        title: "" for none.
        columns: headings, with a unit in parentheses if there is one.
        rows: cells; floats get few digits.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def escaped(text: str) -> str:
    """Returns a text as HTML; an alarm is red."""
    plain = _COLOUR.sub("", text)
    safe = html.escape("\n".join(map(shown, plain.split("\n"))))
    return safe if plain == text else f'<b style="color: #b00020">{safe}</b>'


def table(grid: Grid) -> str:
    """Returns a table as HTML, numbers to the right."""
    head = "".join(f"<th>{escaped(one)}</th>" for one in grid.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in grid.rows)
    title = f"<caption>{escaped(grid.title)}</caption>" if grid.title else ""
    head = f"<thead><tr>{head}</tr></thead>" if any(grid.columns) else ""
    return f"<table>{title}{head}<tbody>{rows}</tbody></table>"


def _cell(value: object) -> str:
    text = cell(value)
    side = "right" if _NUMBER.fullmatch(_COLOUR.sub("", text)) else "left"
    return f'<td style="text-align: {side}">{escaped(text)}</td>'


def rendered(parts: Iterable[str | Grid]) -> str:
    """Returns a report as HTML: tables and lines; an empty line separates parts."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Grid):
            found.append(table(part))
        elif part:
            found.append(f'<div style="white-space: pre-wrap">{escaped(part)}</div>')
    return "".join(found)
