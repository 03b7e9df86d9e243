"""P2's tables of a benchmark: ours with the difference, P2's beside; the same as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from careful.bench.experiments import PROTOCOLS, TABLES, Cell
from careful.bench.paper import paper
from careful.bench.rounds import Found
from careful.report.tables import table

_UNITS = {"us": "µs", "ms": "ms", "Mbit_per_s": "Mbit/s"}
#: Where there is no value: a run did not end in time, or P2 has none.
_NONE = "-"


def delta(traditional: float | None, careful: float | None) -> float | None:
    """What careful's value is above traditional's, per cent; None: one of them is missing."""
    if traditional is None or careful is None:
        return None
    return 100 * (careful / traditional - 1)


def percent(value: float | None) -> str:
    """As P2 has it, with its sign."""
    return _NONE if value is None else f"{value:+.1f}"


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def means(found: Found, cell: Cell) -> tuple[float | None, float | None]:
    """Traditional's and careful's."""
    traditional, careful = (found.results[cell, protocol].mean for protocol in PROTOCOLS)
    return traditional, careful


def _row(found: Found, cell: Cell) -> list[str]:
    ours, theirs = means(found, cell), paper(cell)
    return [
        str(cell.nodes),
        str(cell.words),
        str(found.frames.get(cell.words, _NONE)),
        "with" if cell.processing else "no",
        *map(_number, ours),
        percent(delta(*ours)),
        _number(theirs.traditional),
        _number(theirs.careful),
        percent(theirs.delta),
    ]


def one_table(found: Found, name: str, wanted: Sequence[Cell]) -> str:
    """One of P2's tables."""
    unit = _UNITS[TABLES[name].unit]
    columns = (
        "P",
        "words",
        "frames",
        "processing",
        f"traditional ({unit})",
        f"careful ({unit})",
        "Δ %",
        "P2: traditional",
        "careful",
        "Δ %",
    )
    ordered = sorted(wanted, key=lambda one: (one.nodes, one.words, one.processing))
    return table(TABLES[name].title, columns, [_row(found, one) for one in ordered])


def text(found: Found, notes: Sequence[str]) -> str:
    """All tables, and what is to be said of them."""
    parts = []
    for name in TABLES:
        wanted = list(dict.fromkeys(cell for cell, _ in found.results if cell.table == name))
        if wanted:
            parts.append(one_table(found, name, wanted))
    late = [
        f"{cell.name}, {protocol}: did not end in time"
        for (cell, protocol), result in found.results.items()
        if result.late
    ]
    return "\n\n".join([*parts, "\n".join([*late, *notes])])


def figures(found: Found) -> dict[str, Any]:
    """For --json: each cell with all its values."""
    cells = []
    for cell in dict.fromkeys(cell for cell, _ in found.results):
        unit = TABLES[cell.table].unit
        one: dict[str, Any] = {
            "table": cell.table,
            "nodes": cell.nodes,
            "words": cell.words,
            "frames": found.frames.get(cell.words),
            "processing": cell.processing,
            "messages": cell.count,
            "fragments": cell.fragments,
        }
        for protocol in PROTOCOLS:
            result = found.results[cell, protocol]
            one[protocol] = {
                f"values_{unit}": result.values,
                f"mean_{unit}": result.mean,
                f"deviation_{unit}": _deviation(result.values),
                "late": result.late,
            }
        one["delta_percent"] = delta(*means(found, cell))
        one["paper"] = paper(cell)._asdict()
        cells.append(one)
    return {"kind": "bench", "cells": cells}


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
