"""A benchmark drawn: each value a small circle, as in P2's figures, and the means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from careful.bench.experiments import JACOBI, PROTOCOLS, TABLES, Cell
from careful.bench.rounds import Found
from careful.report import figure as draw
from careful.report.bench import UNITS

#: How far a protocol's values stand beside the middle of their cell.
_ASIDE = 0.16


def plot(found: Found, path: str | Path) -> None:
    """A row of each table: without processing, and with it where it has that."""
    draw.check_path(path)
    cells = list(dict.fromkeys(cell for cell, _ in found.results))
    names = [name for name in TABLES if any(one.table == name for one in cells)]
    if not names:
        raise ValueError("nothing to plot: no cell was run")
    size = (16.0, 4.2 * len(names))
    picture, pairs = draw.grid(len(names), 2, size=size, widths=(1, 1))
    for name, row in zip(names, pairs, strict=True):
        for processing, pair in zip((False, True), row, strict=True):
            wanted = [one for one in cells if one.table == name and one.processing == processing]
            if wanted:
                _panel(pair, found, name, sorted(wanted, key=lambda one: (one.nodes, one.size)))
            else:
                pair.remove()
    draw.save(picture, path)


def _panel(pair: Any, found: Found, name: str, cells: Sequence[Cell]) -> None:
    own = TABLES[name]
    for number, protocol in enumerate(PROTOCOLS):
        colour, side = draw.COLOURS[number], _ASIDE * (2 * number - 1)
        for at, cell in enumerate(cells):
            result = found.results[cell, protocol]
            pair.plot(
                [at + side] * len(result.values),
                result.values,
                draw.MARKERS[number],
                color=colour,
                fillstyle="none",
                markersize=4,
                label=protocol if not at else None,
            )
            if result.mean is not None:
                pair.plot([at + side - 0.1, at + side + 0.1], [result.mean] * 2, color=colour)
    with_it = " with processing" if cells[0].processing else ""
    what = "nodes, rows" if own is JACOBI else "nodes, words"
    draw.label(pair, f"{own.title.partition(':')[0]}{with_it}", what, f"({UNITS[own.unit]})")
    pair.set_xticks(range(len(cells)), [f"{one.nodes}\n{one.size}" for one in cells], fontsize=10)
    if len(cells) > 1:
        pair.set_yscale("log")
        draw.plain_numbers(pair)
    else:
        pair.set_ylim(bottom=0)
    pair.legend(loc="best", fontsize=10)
