"""P2's tables of a benchmark: ours with the difference, P2's beside; the same as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from careful.bench.experiments import JACOBI, PROTOCOLS, TABLES, Cell
from careful.bench.paper import paper
from careful.bench.rounds import Found, Result
from careful.report.tables import table

UNITS = {"us": "µs", "ms": "ms", "s": "s", "Mbit_per_s": "Mbit/s"}
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


def kernel(found: Found, cell: Cell) -> float | None:
    """The kernel's part of all CPU time that both protocols took, per cent."""
    both = [found.results[cell, protocol] for protocol in PROTOCOLS]
    system_us = sum(one.system_us for one in both)
    whole_us = system_us + sum(one.user_us for one in both)
    return 100 * system_us / whole_us if whole_us else None


def _row(found: Found, cell: Cell) -> list[str]:
    own, ours, theirs = TABLES[cell.table], means(found, cell), paper(cell)
    what = str(cell.size) if own is not JACOBI else f"{cell.size} x {cell.size}"
    middle = [str(found.frames.get(cell, _NONE))] if own is not JACOBI else []
    middle += [("with" if cell.processing else "no")] if own.processing else []
    share = kernel(found, cell)
    return [
        str(cell.nodes),
        what,
        *middle,
        *map(_number, ours),
        percent(delta(*ours)) if cell.nodes > 1 else _NONE,
        _NONE if share is None else f"{share:.0f}",
        _number(theirs.traditional),
        _number(theirs.careful),
        percent(theirs.delta),
    ]


def one_table(found: Found, name: str, wanted: Sequence[Cell]) -> str:
    """One of P2's tables."""
    own = TABLES[name]
    unit, paper_unit = UNITS[own.unit], UNITS[own.paper_unit or own.unit]
    columns = (
        "P",
        *(("grid",) if own is JACOBI else ("words", "frames")),
        *(("processing",) if own.processing else ()),
        f"traditional ({unit})",
        f"careful ({unit})",
        "Δ %",
        "kernel %",
        f"P2: traditional ({paper_unit})",
        f"careful ({paper_unit})",
        "Δ %",
    )
    ordered = sorted(wanted, key=lambda one: (one.nodes, one.size, one.processing))
    return table(own.title, columns, [_row(found, one) for one in ordered])


def text(found: Found, inputs: Mapping[str, Any]) -> str:
    """All tables, and what they were measured with.

    inputs: of the run: rounds, mtu_bytes, cpus, kernel.
    """
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
    given = {name: inputs.get(name, "?") for name in ("rounds", "mtu_bytes", "cpus", "kernel")}
    late.append(
        "means of {rounds} x P values; MTU {mtu_bytes}, {cpus} CPUs, kernel {kernel}".format(
            **given
        )
    )
    return "\n\n".join([*parts, "\n".join(late)])


def markdown(found: Found, name: str) -> str:
    """One table for the manual: ours beside P2's, each cell a row with and without processing."""
    own = TABLES[name]
    wanted = dict.fromkeys(cell for cell, _ in found.results if cell.table == name)
    what = "grid" if own is JACOBI else "words"
    head = ["P", what, f"traditional, {UNITS[own.unit]}", "careful", "Δ %", "kernel %", "P2's Δ %"]
    head += ["processing: Δ %", "P2's Δ %"] if own.processing else []
    lines = [own.title, "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in wanted:
        if cell.processing:
            continue
        _, size, *_ = row = _row(found, cell)
        traditional, careful, ours, share, _, _, theirs = row[-7:]
        shown = [str(cell.nodes), size, traditional, careful, ours, share, theirs]
        if own.processing:
            again = _row(found, replace(cell, processing=True))
            shown += [again[-5], again[-1]]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def figures(found: Found) -> dict[str, Any]:
    """For --json: each cell with all its values."""
    cells = []
    for cell in dict.fromkeys(cell for cell, _ in found.results):
        unit = TABLES[cell.table].unit
        one: dict[str, Any] = {
            "table": cell.table,
            "nodes": cell.nodes,
            "size": cell.size,
            "frames": found.frames.get(cell),
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
                "user_us": result.user_us,
                "system_us": result.system_us,
            }
        one["delta_percent"] = delta(*means(found, cell))
        one["kernel_percent"] = kernel(found, cell)
        one["paper"] = paper(cell)._asdict()
        cells.append(one)
    return {"kind": "bench", "cells": cells}


def read(kept: dict[str, Any]) -> Found:
    """What figures() wrote; raises ValueError."""
    try:
        found = Found([])
        for one in kept["cells"]:
            cell = Cell(
                one["table"],
                one["nodes"],
                one["size"],
                one["processing"],
                one["messages"],
                one["fragments"],
            )
            unit = TABLES[cell.table].unit
            for protocol in PROTOCOLS:
                kept_one = one[protocol]
                found.results[cell, protocol] = Result(
                    list(map(float, kept_one[f"values_{unit}"])),
                    *(int(kept_one[name]) for name in ("late", "user_us", "system_us")),
                )
            if one["frames"] is not None:
                found.frames[cell] = int(one["frames"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no benchmark was kept here: {error}") from None
    return found


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
