"""A benchmark as P2's tables, our values next to P2's, and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from careful.bench.experiments import JACOBI, PROTOCOLS, TABLES, Cell
from careful.bench.paper import paper
from careful.bench.rounds import Result, Results
from careful.errors import InputError
from careful.jsonout import Json
from careful.render.measuring.bench_delta import (
    AHEAD,
    BEHIND,
    OPEN,
    ROUNDS_MIN,
    Delta,
    compare,
    totals,
)
from careful.render.tables import table

UNITS = {"us": "µs", "ms": "ms", "s": "s", "Mbit_per_s": "Mbit/s"}
#: Shown if there is no value: a run did not end in time, or P2 has none.
_NONE = "-"


def percent(value: float | None) -> str:
    """Returns a percentage like P2's, with its sign."""
    return _NONE if value is None else f"{value:+.1f}"


def interval(delta: Delta) -> str:
    """Returns a difference with its interval: +6.9 (-4.2 … +24)."""
    if delta.low is None or delta.high is None:
        return percent(delta.percent)
    low, high = (f"{one:+.{1 if abs(one) < 9.5 else 0}f}" for one in (delta.low, delta.high))
    return f"{percent(delta.percent)} ({low} … {high})"


def _number(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def kernel(found: Results, cell: Cell) -> float | None:
    """Returns the kernel's share of the CPU time of both protocols, per cent."""
    both = [found.results[cell, protocol] for protocol in PROTOCOLS]
    system_us = sum(one.system_us for one in both)
    whole_us = system_us + sum(one.user_us for one in both)
    return 100 * system_us / whole_us if whole_us else None


def _row(found: Results, cell: Cell) -> list[str]:
    own, theirs = TABLES[cell.table], paper(cell)
    what = str(cell.size) if own is not JACOBI else f"{cell.size} x {cell.size}"
    middle = [str(found.frames.get(cell, _NONE))] if own is not JACOBI else []
    middle += [("with" if cell.processing else "no")] if own.processing else []
    share = kernel(found, cell)
    return [
        str(cell.nodes),
        what,
        *middle,
        *(_number(found.results[cell, protocol].mean) for protocol in PROTOCOLS),
        interval(compare(found, cell)),
        _NONE if share is None else f"{share:.0f}",
        _number(theirs.traditional),
        _number(theirs.careful),
        percent(theirs.delta),
    ]


def one_table(found: Results, name: str, wanted: Sequence[Cell]) -> str:
    """Returns one of P2's tables."""
    own = TABLES[name]
    columns = (
        "P",
        *(("grid",) if own is JACOBI else ("words", "frames")),
        *(("processing",) if own.processing else ()),
        "traditional",
        "careful",
        "Δ % (95 %)",
        "kernel %",
        "P2: traditional",
        "careful",
        "Δ %",
    )
    units = UNITS[own.unit] + (f"; P2's: {UNITS[own.paper_unit]}" if own.paper_unit else "")
    ordered = sorted(wanted, key=lambda one: (one.nodes, one.size, one.processing))
    return table(f"{own.title} ({units})", columns, [_row(found, one) for one in ordered])


def bench_text(found: Results, inputs: Mapping[str, object]) -> str:
    """Returns all tables, and the conditions of the run.

    inputs: of the run: rounds, mtu_bytes, cpus, kernel.
    """
    parts = []
    for name in TABLES:
        wanted = list(dict.fromkeys(cell for cell, _ in found.results if cell.table == name))
        if wanted:
            parts.append(one_table(found, name, wanted))
    notes = [
        f"{cell.name}, {protocol}: did not end in time"
        for (cell, protocol), result in found.results.items()
        if result.late
    ]
    given = {name: inputs.get(name, "?") for name in ("rounds", "mtu_bytes", "cpus", "kernel")}
    notes.append(
        "each figure is a mean over {rounds} rounds and all nodes; "
        "MTU {mtu_bytes}, {cpus} CPUs, kernel {kernel}".format(**given)
    )
    notes.append(verdict(totals(found)))
    return "\n\n".join([*parts, "\n".join(notes)])


def verdict(count: Mapping[str | None, int]) -> str:
    """Counts the cases in which each protocol is ahead."""
    total = sum(count[one] for one in (AHEAD, BEHIND, OPEN))
    parts = []
    if total:
        parts.append(
            f"careful is ahead in {count[AHEAD]} of {_cells(total)}, behind in {count[BEHIND]}; "
            f"{count[OPEN]} cannot be told apart"
        )
    if count[None]:
        parts.append(
            f"{_cells(count[None])} without an interval: under {ROUNDS_MIN} rounds, or a late run"
        )
    return "; ".join(parts)


def _cells(count: int) -> str:
    return f"{count} cell{'s' if count != 1 else ''}"


def markdown(found: Results, name: str) -> str:
    """Returns a table for the manual: ours next to P2's, narrow enough for a page."""
    own = TABLES[name]
    wanted = dict.fromkeys(cell for cell, _ in found.results if cell.table == name)
    head = ["P", "grid" if own is JACOBI else "words", *(["processing"] if own.processing else [])]
    head += ["traditional", "careful", "Δ %", "kernel", "P2's"]
    lines = [f"{own.title} ({UNITS[own.unit]})", ""]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for cell in wanted:
        nodes, size, *middle, traditional, careful, ours, share, _, _, theirs = _row(found, cell)
        how = ["yes" if one == "with" else one for one in middle[1:]] if own is not JACOBI else []
        shown = [nodes, size, *how, traditional, careful, ours, share, theirs]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines).replace("…", "to")  # man does not show it everywhere


def bench_figures(found: Results) -> dict[str, object]:
    """Returns each cell with all its values, for JSON."""
    cells = []
    for cell in dict.fromkeys(cell for cell, _ in found.results):
        unit = TABLES[cell.table].unit
        one: dict[str, object] = {
            "table": cell.table,
            "nodes": cell.nodes,
            "size": cell.size,
            "frames": found.frames.get(cell),
            "processing": cell.processing,
            "messages": cell.count,
            "fragments": cell.fragments,
        }
        ours = compare(found, cell)
        for protocol in PROTOCOLS:
            result = found.results[cell, protocol]
            one[protocol] = {
                f"values_{unit}": [_rounded(value) for value in result.values],
                f"mean_{unit}": _rounded(result.mean),
                f"deviation_{unit}": _rounded(_deviation(result.values)),
                "late": result.late,
                "user_us": result.user_us,
                "system_us": result.system_us,
            }
        one["delta_percent"] = _rounded(ours.percent)
        one["delta_95_percent"] = [_rounded(ours.low), _rounded(ours.high)]
        one["verdict"] = ours.verdict
        one["kernel_percent"] = _rounded(kernel(found, cell))
        one["paper"] = paper(cell)._asdict()
        cells.append(one)
    count = totals(found)
    counts = {f"{one}_count": count[one] for one in (AHEAD, BEHIND, OPEN)}
    return {"kind": "bench", **counts, "cells": cells}


def read(kept: Json) -> Results:
    """Reads the output of bench_figures(); raises ValueError."""
    try:
        found = Results([])
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
        raise InputError(f"not a kept benchmark: {error}") from None
    return found


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.6g}")
