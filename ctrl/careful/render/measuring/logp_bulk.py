"""Bulk transfers and contention as text and JSON."""

from __future__ import annotations

from careful.measure.endpoints.bulk import Bulk
from careful.measure.endpoints.contention import Flood
from careful.measure.endpoints.logp import Result
from careful.measure.statistics.line import Line
from careful.measure.statistics.sample import Figure
from careful.render.digits import estimate_figures, with_half
from careful.render.measuring.logp import curve_figures
from careful.render.tables import table


def _line(line: Line | None) -> dict[str, object]:
    if line is None:
        return {"reason": "too few sizes have a figure"}
    found: dict[str, object] = {"G_us_per_KiB": None, "intercept_us": None}
    if line.supported:
        found |= line.G_us_per_KiB.figures("G", "us_per_KiB")
        found |= line.intercept_us.figures("intercept", "us")
    return found | {
        "residual_us": round(line.residual_us, 4),
        "sizes_count": line.points_count,
        "size_min_bytes": int(line.size_min_bytes),
        "size_max_bytes": int(line.size_max_bytes),
        "reason": line.reason,
    }


def _named(found: Result) -> dict[str, Figure]:
    return {"os": found.os, "or": found.or_, "g": found.g, "L": found.L, "T": found.rtt}


def bulk_figures(found: Bulk) -> dict[str, object]:
    """Returns one kind of transfer for JSON."""
    half = found.half_power_bytes
    sizes = []
    rates = found.bandwidths()
    for size, one, rate in zip(found.sizes_bytes, found.results, rates, strict=True):
        found_there: dict[str, object] = {"bytes": size}
        for name, figure in _named(one).items():
            found_there |= figure.figures(name, "us")
        found_there |= estimate_figures(rate, "BW", "MB_per_s")
        found_there["curves"] = [curve_figures(curve) for curve in one.curves]
        sizes.append({**found_there, "notes": one.notes})
    return {
        "kind": found.kind,
        **{name: _line(line) for name, line in found.lines.items()},
        **estimate_figures(half, "half_power", "bytes", 1),
        "sizes": sizes,
    }


def bulk_text(found: Bulk) -> str:
    """Returns one kind of transfer for people."""
    rows = [
        (
            size,
            *(with_half(figure.estimate) for figure in _named(one).values()),
            with_half(rate),
        )
        for size, one, rate in zip(
            found.sizes_bytes, found.results, found.bandwidths(), strict=True
        )
    ]
    columns = ("bytes", *(f"{name}(n) µs" for name in found.lines), "BW(n) MB/s")
    lines = [table(found.kind, columns, rows)]
    withheld: dict[str, list[str]] = {}
    for size, one in zip(found.sizes_bytes, found.results, strict=True):
        for reason in dict.fromkeys(figure.reason for figure in _named(one).values()):
            withheld.setdefault(reason, []).append(str(size))
    lines += [f"{', '.join(each)} bytes: {why}" for why, each in withheld.items() if why]
    lacking: dict[str, list[str]] = {}
    for name, line in found.lines.items():
        if line is None or not line.supported:
            why = line.reason if line else "too few sizes have a figure"
            lacking.setdefault(why, []).append(f"{name}(n)")
            continue
        G, at_0 = line.G_us_per_KiB, line.intercept_us
        lines.append(
            f"{name}(n) = {with_half(at_0)} µs + {with_half(G)} µs/KiB, "
            f"residual {line.residual_us:.2g} µs"
        )
    lines += [f"{', '.join(each)}: no line, {why}" for why, each in lacking.items()]
    if found.half_power_bytes:
        half = found.half_power_bytes
        beyond = " (beyond the sizes measured)" if half.value > found.sizes_bytes[-1] else ""
        lines.append(f"half-power point {with_half(half)} bytes{beyond}")
    return "\n".join(lines)


def flood_figures(found: Flood, layer: str, capacity: int) -> dict[str, object]:
    """Returns a sender that did not pause, for JSON."""
    return {
        "kind": "gap",
        "layer": layer,
        "capacity_messages": capacity,
        **found.gap_us.figures("g", "us"),
        "slices": [
            {"ended_s": round(one.ended_s, 6), "messages": one.messages} for one in found.slices
        ],
        "ended_s_is": "the wall clock, which aligns what several hosts measured at once",
    }


def flood_text(found: Flood, layer: str, host: str) -> str:
    """Returns a sender that did not pause, for people."""
    took_s = found.slices[-1].at_s - found.slices[0].at_s
    messages = sum(one.messages for one in found.slices[1:])
    why = f" ({found.gap_us.reason})" if found.gap_us.reason else ""
    return (
        f"{layer} to {host}: gap {with_half(found.gap_us.estimate)} µs{why}, "
        f"{messages} messages in {took_s:.1f} s, {len(found.slices)} slices"
    )
