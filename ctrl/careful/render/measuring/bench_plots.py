"""A benchmark drawn: each value a small circle, as in P2's figures, and the means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from careful.bench.experiments import JACOBI, PROTOCOLS, TABLES, Cell
from careful.bench.rounds import Results
from careful.errors import InputError
from careful.render import figure as draw
from careful.render.measuring.bench import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Distance of a protocol's values from the middle of their cell.
_ASIDE = 0.18
#: Width over which the values are spread.
_SPREAD = 0.2


def plot(found: Results, path: str | Path) -> None:
    """Draws a panel for each table: without processing, and next to it with processing, if any."""
    cells = list(dict.fromkeys(cell for cell, _ in found.results))
    names = sorted(TABLES, key=lambda name: not TABLES[name].processing)  # pairs first
    panels = [
        (name, wanted)
        for name in names
        for processing in (False, True)
        if (wanted := [one for one in cells if (one.table, one.processing) == (name, processing)])
    ]
    if not panels:
        raise InputError("nothing to plot: no cell was run")
    rows = (len(panels) + 1) // 2
    picture, pairs = draw.grid(rows, 2, size=(16.0, 4.2 * rows + 0.4), widths=(1, 1))
    places = [pair for row in pairs for pair in row]
    for place, (name, wanted) in zip(places, panels, strict=False):
        _panel(place, found, name, sorted(wanted, key=lambda one: (one.nodes, one.size)))
    for place in places[len(panels) :]:
        place.remove()
    draw.legend_above(picture, places[0])
    draw.save(picture, path)


def _panel(pair: Axes, found: Results, name: str, cells: Sequence[Cell]) -> None:
    own = TABLES[name]
    for number, protocol in enumerate(PROTOCOLS):
        colour, side = draw.COLOURS[number], _ASIDE * (2 * number - 1)
        for at, cell in enumerate(cells):
            result = found.results[cell, protocol]
            count = len(result.values)
            pair.plot(
                [at + side + _SPREAD * (one / count - 0.5) for one in range(count)],
                result.values,
                draw.MARKERS[number],
                color=colour,
                fillstyle="none",
                markersize=3,
                label=protocol if not at else None,
            )
            if result.mean is not None:
                pair.plot([at + side - 0.15, at + side + 0.15], [result.mean] * 2, color=colour)
    suffix = " with processing" if cells[0].processing else ""
    what = "nodes, rows" if own is JACOBI else "nodes, words"
    meant = "throughput" if own.more_is_better else "time"
    title = f"{own.title.partition(':')[0]}{suffix}"
    draw.label(pair, title, what, f"{meant} ({UNITS[own.unit]})")
    names = [f"{one.nodes}\n{one.size}" for one in cells]
    pair.set_xticks(range(len(cells)), names, fontsize=10 if len(cells) <= 16 else 8)
    if len(cells) > 1:
        pair.set_yscale("log")
        draw.plain_numbers(pair)
    else:
        pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
        pair.set_xlim(-2, 2)
