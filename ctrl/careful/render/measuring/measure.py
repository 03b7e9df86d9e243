"""`carefulctl measure` as text and JSON."""

from __future__ import annotations

import platform

from careful.address import Address
from careful.measure.outside.blackbox_result import Result
from careful.measure.path.answer import Answer, of_blackbox
from careful.measure.path.hops import Path, Segment
from careful.render.digits import estimate_figures, or_most
from careful.render.tables import Parts, Table, report_text
from careful.units import shown_rate, shown_time


def environment() -> dict[str, object]:
    """Returns the host's properties, for the inputs of every measurement."""
    return {"kernel": platform.release()}


def inputs(address: Address, options: object) -> dict[str, object]:
    """Returns the inputs of a measurement: address, options (a dataclass), and environment()."""
    return {"address": str(address), **vars(options), **environment()}


def answer(found: Answer) -> list[str]:
    """Returns round trips, the rate and the bottleneck, and in a line why any is missing."""
    lines = []
    if found.trips:
        trips = ", ".join(f"{shown_time(us)} at {size} bytes" for size, us in found.trips)
        lines.append(f"round trip: {trips}")
    if found.rate_gbit_per_s is not None:
        least = "at least " if found.is_bound else ""
        rate = shown_rate(found.rate_gbit_per_s * 1e9 / 8)
        lines.append(f"rate in frames of {found.size_bytes} bytes: {least}{rate}")
    if found.bottleneck:
        lines.append(f"bottleneck: {found.bottleneck}")
    if found.why_not:
        lines.append(f"not told: {found.not_told}: {found.why_not}")
    return [*lines, ""]


def _mbit_per_s(G_us_per_KiB: float) -> float:
    return 8 * 1024 / G_us_per_KiB


def _segment(segment: Segment, path: Path) -> dict[str, object]:
    """Returns one hop for JSON, or several that could not be told apart."""
    line, G, latency = segment.line, segment.G_us_per_KiB, segment.latency_us
    hop = next(one for one in path.hops if one.ttl == segment.ttls[-1])
    return {
        "hops": list(segment.ttls),
        "address": segment.address,
        **estimate_figures(G, "G", "us_per_KiB", 3),
        "rate_mbit_per_s": round(_mbit_per_s(G.value), 4) if G else None,
        **estimate_figures(latency, "latency", "us", 2),
        "residual_us": round(line.residual_us, 3),
        "samples_count": line.samples_count,
        "sizes_count": line.points_count,
        "size_min_bytes": int(line.size_min_bytes),
        "size_max_bytes": int(line.size_max_bytes),
        "answered_share": round(hop.answered_share, 4),
        "lost_since_s": None if segment.lost_s is None else round(segment.lost_s, 1),
        "reason": segment.reason,
    }


def pathchar_figures(path: Path) -> dict[str, object]:
    """Returns a path for JSON."""
    return {
        "kind": "pathchar",
        "reached": path.reached,
        "settled": path.settled,
        "mtu_bytes": path.mtu_bytes,
        "hops": [_segment(segment, path) for segment in path.segments],
        "not_measured": [
            {"hop": hop.ttl, "address": hop.address, "reason": hop.note}
            for hop in path.hops
            if not hop.usable
        ],
        "sizes_bytes": path.sizes_bytes,
        "rounds_count": path.rounds_count,
        "probes_count": path.probes_count,
        "probes_discovery_count": path.discovery_count,
        "probes_fixed_plan_count": path.fixed_plan_count,
        "saving_share": None if path.saving_share is None else round(path.saving_share, 4),
        "elapsed_s": round(path.elapsed_s, 3),
        "G_counts": "bytes of the IP packet",
        "latency_is": "overhead and propagation one way, if answers cross the same links",
        "notes": path.notes,
    }


def _said(segment: Segment) -> str:
    lost = "" if segment.lost_s is None else f"until {segment.lost_s:.1f} s"
    merged = "merged" if len(segment.ttls) > 1 else ""
    return "; ".join(one for one in (segment.reason or merged, lost) if one)


def pathchar_parts(path: Path, host: str) -> Parts:
    """Returns a path for people."""
    rows = []
    for segment in path.segments:
        G, own = segment.G_us_per_KiB, segment.own
        rows.append(
            (
                ", ".join(map(str, segment.ttls)),
                segment.address,
                or_most(segment.latency_us, own.estimate_at(own.size_min_bytes) if own else None),
                or_most(G, own.G_us_per_KiB if own else None),
                f"{_mbit_per_s(G.value):.3g}" if G else "-",
                segment.line.samples_count,
                _said(segment),
            )
        )
    columns = ("hop", "address", "latency (µs)", "G (µs/KiB)", "Mbit/s", "samples", "")
    return [Table(f"path to {host}", columns, rows), *pathchar_summary(path).split("\n")]


def pathchar_table(path: Path, host: str) -> str:
    """Returns a path as text."""
    return report_text(pathchar_parts(path, host))


def pathchar_summary(path: Path) -> str:
    """Returns the number of probes, and notes on the hops."""
    lines = []
    if path.segments:
        lines.append(
            f"\n{path.discovery_count} probes to find the hops, "
            f"{path.probes_count - path.discovery_count} of {path.sizes_bytes[0]} to "
            f"{path.sizes_bytes[-1]} bytes in {path.elapsed_s:.1f} s"
        )
        if path.saving_share is not None:
            lines[-1] += (
                f"; a fixed plan needs {path.fixed_plan_count} ({path.saving_share:.0%} saved)"
            )
    for hop in path.hops:
        if not hop.usable and not any(f"hop {hop.ttl}," in note for note in path.notes):
            lines.append(f"hop {hop.ttl}: {hop.note}")
    lines += path.notes
    return "\n".join(lines)


def _unless_said(said: str, reason: str) -> str:
    """Returns a reason, or "" if the answer above the table has said it."""
    return "" if reason == said else reason


def blackbox_parts(found: Result, host: str) -> Parts:
    """Returns a black box for people: the answer, then the figures."""
    answered = of_blackbox(found)
    rows = [
        (
            f"bottleneck, {regime.low_bytes:.0f} to {regime.high_bytes:.0f} bytes",
            or_most(regime.g_b_us, regime.line.estimate_at(regime.line.size_min_bytes)),
            or_most(regime.G_b_us_per_KiB, regime.line.G_us_per_KiB),
            _unless_said(answered.why_not, regime.line.reason),
        )
        for regime in found.regimes
    ]
    trips = found.round_trips
    rows.append(
        (
            "all stages and propagation",
            or_most(found.sum_g_us, trips.estimate_at(trips.size_min_bytes) * 0.5),
            or_most(found.sum_G_us_per_KiB, found.one_way.G_us_per_KiB),
            _unless_said(answered.why_not, found.one_way.reason or trips.reason),
        )
    )
    others = or_most(found.sum_G_others_us_per_KiB, found.others_at_most)
    rows.append(("all but the bottleneck", "", others, ""))
    columns = ("stages", "g (µs)", "G (µs/KiB)", "")
    lines: Parts = [
        *answer(answered),
        Table(f"careful to {host}, measured from its ends", columns, rows),
        "",
        f"{found.round_trips.samples_count} round trips and {len(found.gaps[0])} trains of "
        f"{found.train_frames} frames in {found.elapsed_s:.1f} s",
    ]
    if not found.settled:
        lines.append("stopped before the intervals were as narrow as asked for")
    return lines + found.notes


def blackbox_table(found: Result, host: str) -> str:
    """Returns a black box as text."""
    return report_text(blackbox_parts(found, host))
