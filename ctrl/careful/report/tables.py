"""Tables for terminals and for issues, drawn by rich."""

from __future__ import annotations

import io
from collections.abc import Sequence

#: What is no longer is neither cut nor broken, however narrow the terminal.
_WHOLE = 26


def alarm(text: str) -> str:
    """A text that must not be overlooked: red where standard output is a terminal.

    click takes the colour off everywhere else, and where NO_COLOR is set.
    """
    return f"\x1b[1;31m{text}\x1b[0m"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as text, numbers to the right.

    columns: headings, a unit in parentheses where there is one; rows: cells, formatted with
    `str` but for floats, which get up to four significant figures after the point drops.
    """
    import shutil

    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    drawn = Table(title=title or None, box=box.SIMPLE, title_justify="left", pad_edge=False)
    cells = [[_cell(cell) for cell in row] for row in rows]
    wide = [min(max(map(cell_len, each)), _WHOLE) for each in zip(columns, *cells, strict=True)]
    for number, column in enumerate(columns):
        numeric = all(isinstance(row[number], (int, float)) for row in rows)
        drawn.add_column(
            column,
            justify="right" if numeric and rows else "left",
            min_width=wide[number],
        )
    for row in cells:
        drawn.add_row(*row)
    out = io.StringIO()
    # Between columns, and at the left and right edge.
    wanted = sum(wide) + 3 * len(wide) + 2
    width = max(100, shutil.get_terminal_size((100, 24)).columns, wanted)
    Console(file=out, width=width, color_system=None, highlight=False, markup=False).print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def sizes(values: Sequence[float], most: int = 12) -> str:
    """Fragment sizes in a line: runs of equal sizes as 3x1024, long lists cut."""
    runs: list[list[float]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    words = [f"{count:.0f}x{value:.0f}" if count > 1 else f"{value:.0f}" for value, count in runs]
    if len(words) > most:
        words = [*words[: most - 2], "…", words[-1]]
    return " ".join(words)
