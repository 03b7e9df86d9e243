"""Tables and paragraphs folded to the width of the terminal; a pipe or file gets whole lines.

Also owns which texts are red.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from careful.html import Grid
from careful.units import cell as _cell
from careful.units import time_unit

#: Columns without a terminal: nothing is folded.
_ENDLESS = 1 << 20
_GAP = "  "
#: A space at which a cell is not folded, such as the space between a figure and its unit.
NO_BREAK = "\u00a0"
_NUMBER = re.compile(r"\d+(\.\d+)?")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def alarm(text: str) -> str:
    """Returns a text that must not be overlooked: red if standard output is a terminal.

    click removes the colour elsewhere, and if NO_COLOR is set. Each word is coloured by itself, so
    that a line may break between words.
    """
    return " ".join(f"\x1b[1;31m{word}\x1b[0m" for word in text.split(" "))


def width(err: bool = False) -> int:
    """Returns the columns of the terminal, or COLUMNS; _ENDLESS without a terminal.

    err: of standard error.
    """
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return (
            os.get_terminal_size((sys.stderr if err else sys.stdout).fileno()).columns or _ENDLESS
        )
    except (OSError, ValueError):  # not a terminal, or not a file
        return _ENDLESS


def cells(text: str) -> int:
    """Returns the columns of a line: colours need none, East Asian characters two."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in _COLOUR.sub("", text)
    )


def folded(text: str, hang: int = 2, err: bool = False) -> str:
    """Folds a text between words at the width of the terminal.

    hang: extra indent of a continuation; err: the text is for standard error.
    """
    return "\n".join(folded_lines(text.split("\n"), hang, err))


def folded_lines(lines: Iterable[str], hang: int = 2, err: bool = False) -> Iterator[str]:
    """Folds many lines; asks for the terminal's width once, at the first line."""
    columns = width(err)
    for line in lines:
        if len(line) * 2 <= columns:  # no character needs more than two columns
            yield line
        else:
            yield from _fold(line, columns, hang)


def _fold(line: str, columns: int, hang: int = 0) -> Iterator[str]:
    if cells(line) <= columns:
        yield line
        return
    indent = len(line) - len(line.lstrip(" "))
    begun = line[:indent]
    for word in line[indent:].split(" "):
        if not begun.strip():
            begun += word
        elif cells(begun) + 1 + cells(word) <= columns:
            begun += f" {word}"
        else:
            yield begun.rstrip()
            begun = " " * (indent + hang) + word
    yield begun


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table as text, numbers to the right.

    To fit the terminal, headings are folded first, then texts; then each row becomes a list.

    columns: headings, with a unit in parentheses if there is one; rows: cells, formatted with
    `str`, except floats, which get up to four significant figures.
    """
    columns, rows = _fit_time_units(columns, rows)
    texts = [[_cell(cell) for cell in row] for row in rows]
    numeric = [_are_numbers([row[number] for row in rows]) for number in range(len(columns))]
    widths = _widths(columns, texts, numeric, width() - len(_GAP) * (len(columns) - 1))
    lines = [title] if title else []
    if widths is None:
        lines += _records(columns, texts)
    else:
        head = _row(columns, widths, numeric, at_foot=True)
        body = [line for row in texts for line in _row(row, widths, numeric)]
        rule = "─" * (sum(widths) + len(_GAP) * (len(widths) - 1))
        lines += [*head, rule, *body]
    return "\n".join(lines).replace(NO_BREAK, " ")


def _fit_time_units(
    columns: Sequence[str], rows: Sequence[Sequence[object]]
) -> tuple[list[str], list[list[object]]]:
    """Shows a column of times in µs in the unit that fits the shortest."""
    heads, cut = list(columns), [list(row) for row in rows]
    for number, head in enumerate(columns):
        values = [row[number] for row in rows]
        unit, size = time_unit(min((one for one in values if isinstance(one, float)), default=0.0))
        if "(µs)" in head and size > 1:
            heads[number] = head.replace("(µs)", f"({unit})")
            for row, one in zip(cut, values, strict=True):
                if isinstance(one, (int, float)):
                    digits = sum(one < size * least for least in (10, 100, 1000))
                    row[number] = f"{one / size:.{digits}f}"
    return heads, cut


class Table(Grid):
    """A table that is not drawn yet: str() draws it as text, careful.html in notebooks."""

    __slots__ = ()

    def __str__(self) -> str:
        return table(*self)


#: A report: lines and tables; an empty line separates parts.
Parts = list[str | Table]


def report_text(parts: Parts) -> str:
    """Returns a report as text."""
    return "\n".join(map(str, parts))


def _longest_word(text: str) -> int:
    return max(map(cells, text.split(" ")))


def _widths(
    columns: Sequence[str], texts: Sequence[Sequence[str]], numeric: Sequence[bool], room: int
) -> list[int] | None:
    """Returns the width of each column; None if they do not fit side by side."""
    inside = [[row[number] for row in texts] for number in range(len(columns))]
    whole = [max(map(cells, each), default=0) for each in inside]
    heads = [_longest_word(column) for column in columns]
    widths = [max(*pair) for pair in zip(map(cells, columns), whole, strict=True)]
    if sum(widths) <= room:
        return widths
    widths = [max(*pair) for pair in zip(heads, whole, strict=True)]
    least = [
        wide if number else max(head, max(map(_longest_word, each), default=0))
        for wide, number, head, each in zip(widths, numeric, heads, inside, strict=True)
    ]
    if sum(least) > room:
        return None
    while sum(widths) > room:
        spare = [wide if wide > low else 0 for wide, low in zip(widths, least, strict=True)]
        widths[spare.index(max(spare))] -= 1
    return widths


def _row(
    texts: Sequence[str], widths: Sequence[int], numeric: Sequence[bool], at_foot: bool = False
) -> Iterator[str]:
    """Yields the lines of a row; at_foot: cells with fewer lines begin lower, not at the top."""
    parts = [list(_fold(text, wide)) for text, wide in zip(texts, widths, strict=True)]
    height = max(map(len, parts))
    for number, part in enumerate(parts):
        rest = [""] * (height - len(part))
        parts[number] = rest + part if at_foot else part + rest
    for line in zip(*parts, strict=True):
        padded = [
            " " * (wide - cells(text)) + text if right else text + " " * (wide - cells(text))
            for text, wide, right in zip(line, widths, numeric, strict=True)
        ]
        yield _GAP.join(padded).rstrip()


def _records(columns: Sequence[str], texts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields each row as a list: the first cell, then a line for each other cell."""
    wide, room = max(map(cells, columns)), width()
    for first, *rest in texts:
        if first:
            yield from _fold(f"{columns[0]} {first}", room, 2)
        for column, text in zip(columns[1:], rest, strict=True):
            if text:
                line = f"  {column}{' ' * (wide - cells(column))}  {text}"
                yield from _fold(line, room, wide + 2)


def _are_numbers(column: Sequence[object]) -> bool:
    there = [one for one in column if one != "-"]
    return bool(there) and all(map(_is_number, there))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) or bool(_NUMBER.fullmatch(_COLOUR.sub("", str(value))))
