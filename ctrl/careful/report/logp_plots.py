"""LogP signatures drawn as P4 draws them: message cost over burst length, a curve for each D."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from careful.measure.estimators.bulk import Bulk
from careful.measure.estimators.logp import Result
from careful.measure.statistics.line import Line
from careful.report import figure
from careful.report.digits import with_half


def draw(signatures: Sequence[Result], bulks: Sequence[Bulk], host: str, path: Path) -> None:
    """Write one panel for each layer's signature (Figures 4 and 5), one for each kind of bulk."""
    labels = [
        (f"{one.layer} to {host}", "burst (messages)", "message cost (µs)") for one in signatures
    ]
    labels += [(f"{one.kind} to {host}", "size (bytes)", "time (µs)") for one in bulks]
    rows = -(-len(labels) // 2)
    columns = min(len(labels), 2)
    size = (8.5 * columns, 5.5 * rows)
    whole, table = figure.grid(rows, columns, size=size, widths=[1.0] * columns)
    pairs = [pair for row in table for pair in row]
    for pair in pairs[len(labels) :]:
        pair.remove()
    for pair, (title, x, y) in zip(pairs, labels, strict=False):
        pair.set_title(title, loc="left")
        pair.set_xlabel(x)
        pair.set_ylabel(y)
    for pair, one in zip(pairs, signatures, strict=False):
        _signature(pair, one)
    for pair, bulk in zip(pairs[len(signatures) :], bulks, strict=False):
        _bulk(pair, bulk)
    figure.save(whole, path)


def _signature(pair: Any, found: Result) -> None:
    for number, curve in enumerate(found.curves):
        costs, errors = curve.costs()
        pair.errorbar(
            curve.bursts.marks,
            costs,
            yerr=2 * errors,
            label=f"D = {curve.compute_us:g} µs",
            color=figure.COLOURS[number],
            linestyle=figure.DASHES[number],
            marker=figure.MARKERS[number],
            markersize=6,
            elinewidth=1,
        )
    pair.set_xscale("log", base=2)
    pair.set_ylim(bottom=0)
    ticks = [2**k for k in range(13) if 2**k <= 1.5 * found.curves[0].bursts.marks[-1]]
    pair.set_xticks(ticks, [str(tick) for tick in ticks])
    last = float(found.curves[0].bursts.marks[-1])
    for name, one, at, side in (("os", found.os, 1.0, "left"), ("g", found.g, last, "right")):
        if one.estimate:
            pair.axhline(one.estimate.value, color="#666666", linewidth=1)
            pair.annotate(
                f"{name} = {with_half(one.estimate)} µs",
                (at, one.estimate.value),
                xytext=(0, 8),
                textcoords="offset points",
                fontsize=12,
                ha=side,
            )
    _regimes(pair, found)
    figure.legend_below(pair, ncols=2)


def _regimes(pair: Any, found: Result) -> None:
    """Where the regimes of D = 0 meet, and their names along the top."""
    first = found.curves[0]
    steady, last = first.steady_messages, float(first.bursts.marks[-1])
    if steady is None:
        return
    spans = [(1.0, float(first.send_messages), "send only"), (float(steady), last, "steady")]
    if steady > 1.25 * first.send_messages:
        spans.insert(1, (float(first.send_messages), float(steady), "transition"))
    for number, (low, high, name) in enumerate(spans):
        pair.annotate(
            name,
            ((low * high) ** 0.5, 0.98 - 0.05 * (number % 2)),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=12,
        )
    for edge in (first.send_messages, steady):
        pair.axvline(edge, color="#666666", linewidth=1, linestyle=":")


def _bulk(pair: Any, found: Bulk) -> None:
    lines: list[tuple[str, Line | None, list[float | None]]] = [
        ("T(n)", found.T, [_value(one.rtt.estimate) for one in found.results]),
        ("g(n)", found.g, [_value(one.g.estimate) for one in found.results]),
        ("os(n)", found.os, [_value(one.os.estimate) for one in found.results]),
    ]
    for number, (name, line, values) in enumerate(lines):
        known = [(x, y) for x, y in zip(found.sizes_bytes, values, strict=True) if y is not None]
        if not known:
            continue
        colour = figure.COLOURS[number]
        pair.plot(
            [x for x, _ in known],
            [y for _, y in known],
            linestyle="none",
            color=colour,
            marker=figure.MARKERS[number],
            markersize=7,
            label=name,
        )
        if line is not None and line.supported:
            ends = [line.size_min_bytes, line.size_max_bytes]
            pair.plot(
                ends, [line.at(x) for x in ends], color=colour, linestyle=figure.DASHES[number]
            )
    inside = found.half_power_bytes and found.half_power_bytes.value <= found.sizes_bytes[-1]
    if found.half_power_bytes and inside:
        half = found.half_power_bytes.value
        pair.axvline(half, color="#666666", linewidth=1, linestyle=":")
        pair.annotate(
            f"half power {with_half(found.half_power_bytes)} bytes",
            (half, 0.02),
            rotation=90,
            fontsize=12,
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
        )
    pair.set_ylim(bottom=0)
    figure.legend_below(pair, ncols=3)


def _value(estimate: Any) -> float | None:
    return None if estimate is None else float(estimate.value)
