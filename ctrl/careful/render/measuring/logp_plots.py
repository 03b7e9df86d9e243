"""LogP signatures drawn like P4's: message cost over burst length, a curve for each D."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from careful.measure.endpoints.bulk import Bulk
from careful.measure.endpoints.logp import Result
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import Line
from careful.render import figure
from careful.render.digits import time_with_half, with_half
from careful.units import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Signatures of two bulk sizes are drawn: the smallest, and the one nearest to this (P4 Figures 8
#: and 9).
_BULK_BYTES = 2048

_SIGNATURE = ("burst (messages)", "message cost (µs)")
Panel = tuple[str, str, str, Callable[..., None]]


def draw(signatures: Sequence[Result], bulks: Sequence[Bulk], host: str, path: Path) -> None:
    """Draws signatures and bulk transfers.

    A panel for each layer's signature (P4 Figures 4, 5), one for all layers (Figure 6), and for
    each kind of bulk its times, its bandwidth and two signatures (Figures 7 to 10).
    """
    panels: list[Panel] = [
        (f"{one.layer} to {host}", *_SIGNATURE, partial(_signature, found=one))
        for one in signatures
    ]
    if len(signatures) > 1:
        text = f"os + L + or, and the gap, to {host}"
        panels.append((text, "", "time (µs)", partial(_one_way, signatures=signatures)))
    for bulk in bulks:
        panels += _panels(bulk, host)
    rows, columns = -(-len(panels) // 2), min(len(panels), 2)
    size = (8.5 * columns, 5.5 * rows)
    whole, table = figure.grid(rows, columns, size=size, widths=[1.0] * columns)
    pairs = [pair for row in table for pair in row]
    for pair in pairs[len(panels) :]:
        pair.remove()
    for pair, (title, x, y, drawn) in zip(pairs, panels, strict=False):
        figure.label(pair, title, x, y)
        drawn(pair)
    figure.save(whole, path)


def _panels(bulk: Bulk, host: str) -> list[Panel]:
    name = f"{bulk.kind} to {host}"
    found: list[Panel] = [(name, "size (bytes)", "time (µs)", partial(_bulk, found=bulk))]
    if any(bulk.bandwidths()):
        rate = partial(_bandwidth, found=bulk)
        found.append((name, "size (bytes)", "BW(n) (MB/s)", rate))
    near = min(bulk.sizes_bytes[1:], key=lambda size: abs(size - _BULK_BYTES))
    for size, one in zip(bulk.sizes_bytes, bulk.results, strict=True):
        if size in (bulk.sizes_bytes[0], near):
            text = f"{bulk.kind} of {size} bytes to {host}"
            found.append((text, *_SIGNATURE, partial(_signature, found=one)))
    return found


def _one_way(pair: Axes, signatures: Sequence[Result]) -> None:
    """Draws P4 Figure 6: the parts of a message's one-way time, and next to them the gap."""
    names = [one.layer.removesuffix(" request") for one in signatures]
    places = [2.5 * number for number in range(len(names))]
    bottoms = [0.0] * len(names)
    parts = [
        ("os", [one.os for one in signatures]),
        ("or", [one.or_ for one in signatures]),
        ("L", [one.L for one in signatures]),
    ]
    for number, (name, figures) in enumerate(parts):
        heights = [_value(one.estimate) or 0.0 for one in figures]
        pair.bar(places, heights, 0.9, bottoms, label=name, color=figure.COLOURS[number])
        bottoms = [low + high for low, high in zip(bottoms, heights, strict=True)]
    gaps = [_value(one.g.estimate) or 0.0 for one in signatures]
    pair.bar([at + 1 for at in places], gaps, 0.9, label="g", color=figure.COLOURS[3])
    pair.set_xticks([at + 0.5 for at in places], names)
    figure.legend_below(pair, ncols=4)


def _signature(pair: Axes, found: Result) -> None:
    most_us = 1.05 * max(float(np.max(curve.costs()[0])) for curve in found.curves)
    unit, size = time_unit(most_us)
    for number, curve in enumerate(found.curves):
        costs, errors = curve.costs()
        pair.errorbar(
            curve.bursts.marks,
            costs,
            yerr=2 * errors,
            label=f"D = {curve.compute_us / size:g} {unit}",
            color=figure.COLOURS[number],
            linestyle=figure.DASHES[number],
            marker=figure.MARKERS[number],
            markersize=6,
            elinewidth=1,
        )
    pair.set_xscale("log", base=2)
    pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
    ticks = [2**k for k in range(13) if 2**k <= 1.5 * found.curves[0].bursts.marks[-1]]
    pair.set_xticks(ticks, [str(tick) for tick in ticks])
    for name, one, side in (("os", found.os, "top"), ("g", found.g, "bottom")):
        if one.estimate:
            pair.axhline(one.estimate.value, color="#666666", linewidth=1)
            pair.annotate(
                f" {name} = {time_with_half(one.estimate, most_us)}",
                (1, one.estimate.value),
                xycoords=("axes fraction", "data"),
                fontsize=12,
                va=side,
            )
    _regimes(pair, found)
    figure.legend_below(pair, ncols=2)


def _regimes(pair: Axes, found: Result) -> None:
    """Marks the boundaries between the regimes of D = 0, with their names along the top."""
    first = found.curves[0]
    steady, last = first.steady_messages, float(first.bursts.marks[-1])
    if steady is None:
        return
    spans = [(1.0, float(first.send_messages), "send only"), (float(steady), last, "steady")]
    if steady > 1.25 * first.send_messages:
        spans.insert(1, (float(first.send_messages), float(steady), "transition"))
    pair.set_ylim(0, 1.16 * pair.get_ylim()[1])  # the names have no curve behind them
    for number, (low, high, name) in enumerate(spans):
        pair.annotate(
            name,
            ((low * high) ** 0.5, 0.98 - 0.06 * (number % 2)),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="top",
            fontsize=12,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
    for edge in (first.send_messages, steady):
        pair.axvline(edge, color="#666666", linewidth=1, linestyle=":")


def _bulk(pair: Axes, found: Bulk) -> None:
    series: list[tuple[str, list[float | None]]] = [
        ("T", [_value(one.rtt.estimate) for one in found.results]),
        ("g", [_value(one.g.estimate) for one in found.results]),
        ("os", [_value(one.os.estimate) for one in found.results]),
        ("or", [_value(one.or_.estimate) for one in found.results]),
    ]
    for number, (name, values) in enumerate(series):
        line: Line | None = found.lines.get(name)
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
            label=f"{name}(n)",
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
    pair.set_ylim(0, 1.05 * pair.get_ylim()[1])
    figure.legend_below(pair, ncols=4)


def _bandwidth(pair: Axes, found: Bulk) -> None:
    known = [
        (size, rate.value)
        for size, rate in zip(found.sizes_bytes, found.bandwidths(), strict=True)
        if rate
    ]
    sizes, rates = zip(*known, strict=True)
    figure.lines(pair, sizes, {"n / T(n)": rates})
    pair.set_ylim(0, 1.05 * pair.get_ylim()[1])


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else float(estimate.value)
