"""`tune explain` as text and plot: the settings of a path, and their reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from careful.errors import InputError
from careful.jsonout import Json
from careful.render.tables import NO_BREAK, table
from careful.tuning.verify import MEASURES
from careful.units import shown_bytes, shown_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Decisions shown to people, the newest first.
DECISIONS = 5


def explanation_text(found: Json) -> str:
    """Describes all paths of an instance for people."""
    pid = found["tuner_pid"]
    head = f"instance {found['instance']}: " + (
        f"tuned by process {pid}" if pid else "not being tuned (carefulctl tune auto)"
    )
    paths = [_path(one) for one in found["paths"]] or ["no peers"]
    return "\n\n".join([head, *paths])


def _path(one: Json) -> str:
    parts = [_table(one), f"measured: {MEASURES}", *map(_store, one["stores"])]
    parts += map(_sink, one["sinks"])
    parts += [_tried(each) for each in one["classes"] if each["tried"]]
    parts.append(_how(one["measurement"], one["why_not_measured"]))
    if hops := one.get("hops"):
        named = hops["bottleneck"] or "not sure"
        parts.append(f"bottleneck: {named}; pathchar, {ago(hops['ago_s'])}: {hops['rests_on']}")
    if one["decisions"]:
        parts.append("last decisions:")
        newest = reversed(one["decisions"][-DECISIONS:])
        parts += [f"  {ago(each['ago_s'])}: {decision(each)}" for each in newest]
    return "\n".join(parts)


def _table(one: Json) -> str:
    rows = []
    for each in one["classes"]:
        slowest = each.get("bottleneck", {})
        half = None
        if each.get("predicted_us") is not None:
            half = (each["predicted_high_us"] - each["predicted_low_us"]) / 2
        rows.append(
            (
                _range(each, last=each is one["classes"][-1]).replace(" ", NO_BREAK),
                in_words(each["plan"]),
                _number(each.get("predicted_us")),
                _number(half),
                _number(each["measured_us"]),
                _number(slowest.get("g_us")),
                _number(slowest.get("G_us_per_KiB")),
                f"{each['standing']}: {each['why']}" if each["why"] else each["standing"],
            )
        )
    columns = ["messages", "fragments (bytes)", "predicted (µs)", "± (µs)", "measured (µs)"]
    columns += ["g (µs)", "G (µs/KiB)", "standing"]
    text = table(f"to {one['peer']} ({one['address']})", columns, rows)
    return f"{text}\ng, G: of the bottleneck"


def _store(each: Json) -> str:
    """Describes a store's threshold, for messages that the peer sends."""
    size, least = shown_bytes(each["message_bytes_max"]), each["store_bytes"]
    took = each["measured_us"]
    measured = "" if took is None else f", {shown_time(took)}"
    predicted = f"not predicted: {each.get('why_not_predicted')}"
    if "predicted_us" in each:
        low, high = (shown_time(each[f"predicted_{end}_us"]) for end in ("low", "high"))
        predicted = f"predicted {shown_time(each['predicted_us'])} ({low} to {high})"
    return (
        f"{size}, received into files: writes of {least} bytes or more: {each['standing']}"
        f"{measured}; {predicted}"
    )


def _sink(each: Json) -> str:
    least, most = (each[f"{end}_bytes"] for end in ("least", "most"))
    size = shown_bytes(least) if least == most else f"{shown_bytes(least)} to {shown_bytes(most)}"
    return f"{each['sink']} takes at least {size} at a time: {each['why']}"


def _tried(each: Json) -> str:
    size, count = shown_bytes(each["message_bytes_max"]), each["tried"]["ways_count"]
    if not count:
        return f"{size}: no other setting is worth a try"
    if not each["tried"]["found"]:
        return f"{size}: {count} other settings were tried; none is certainly faster"
    took, sent = each["measured_us"], in_words(each["plan"])
    measured = "not measured by an A/B yet" if took is None else f"{shown_time(took)} measured"
    return (
        f"{size}: the best of {count} settings tried on live messages: fragments of {sent} "
        f"bytes, kicks of {each['net_tx_bytes']} or more; {measured}; nothing is predicted"
    )


def _range(each: Json, *, last: bool) -> str:
    most = each["message_bytes_max"]
    return f"above {shown_bytes(most // 2)}" if last else f"to {shown_bytes(most)}"


def in_words(plan: dict[str, int]) -> str:
    """Returns the fragment sizes of a plan: "1024", or "1024, rising to 8192"."""
    first, peak = plan["first_bytes"], plan["peak_bytes"]
    rises = (plan["ratio_q16"], plan["step_bytes"]) != (1 << 16, 0) and first < (peak or first + 1)
    falls = (plan["down_ratio_q16"], plan["down_step_bytes"]) != (1 << 16, 0) and peak > 0
    if not rises:
        return f"{first}, falling" if falls else str(first)
    return f"{first}, rising{f' to {peak}' if peak else ''}{', then falling' if falls else ''}"


def _number(value: float | None) -> str:
    """Formats with three digits or more and no exponent; a dash for None."""
    if value is None:
        return "-"
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _how(measurement: Json | None, why_not: str) -> str:
    if measurement is None:
        return f"not measured: nothing is predicted ({why_not})"
    took = f"{measurement['frames_count']} frames in {measurement['elapsed_s']:.1f} s"
    when = f"{ago(measurement['ago_s'])}, {measurement['why']}"
    said = f"the path was measured {when}, by {measurement['by']}: {took}"
    if measurement["confirmed_ago_s"] is not None:
        said += f"; a check {ago(measurement['confirmed_ago_s'])} found no change"
    return "\n".join([said, *(f"  {note}" for note in measurement["notes"])])


def ago(seconds: float) -> str:
    """Returns a past time in words."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def changed(each: Json) -> str:
    """Describes the change of a decision for one class."""
    size = shown_bytes(each["message_bytes_max"])
    for sink, what in (("store", "to files: writes"), ("net_tx", "kicks")):
        if each.get("sink") == sink:
            before, after = (each[side][f"{sink}_bytes"] for side in ("before", "after"))
            return f"{size}, {what} of {before} → {after} bytes or more"
    return f"{size}: {in_words(each['before'])} → {in_words(each['after'])} bytes"


def decision(one: Json) -> str:
    """Returns a decision as a line; texts that all its classes share appear once."""
    said = [_evidence(each) for each in one["classes"]]
    alike = len(set(said)) == 1 < len(said)
    parts = [str(one["what"])]
    for each, text in zip(one["classes"], said, strict=True):
        parts.append(changed(each) + (f" ({text})" if text and not alike else ""))
    if alike and said[0]:
        parts.append(said[0])
    return "; ".join([*parts, one["why"]] if one["why"] else parts)


def _evidence(each: Json) -> str:
    figures = each.get("ab") or each.get("prediction") or each.get("trying")
    return str(figures["said"]) if figures else ""


def draw(found: Json, path: Path) -> None:
    """Draws latency over message size: one fragment, fixed 4 KiB, the plan in effect, and the
    oracle.

    The oracle is the best fixed size by the same measurement. Draws the first measured path, else
    the first path's live messages. Raises ValueError if there are neither.
    """
    from careful.render import figure

    one = next((each for each in found["paths"] if each["measurement"]), None)
    if one is None:
        _draw_live(found, path)
        return
    classes = one["classes"]
    sizes = [each["message_bytes_max"] for each in classes]
    best_us = [each["best_us"] for each in classes]
    series: dict[str, Sequence[float]] = {
        "one fragment": [each["one_fragment_us"] for each in classes],
        "fixed 4 KiB": [each["fixed_4KiB_us"] for each in classes],
        "in effect, predicted": [
            math.nan if each["predicted_us"] is None else each["predicted_us"] for each in classes
        ],
        "oracle, predicted": best_us,
    }
    drawn, ((whole,), (more,)) = figure.grid(2, 1, size=(8.0, 8.5), widths=[1])
    figure.label(
        whole, f"latency of a message to {one['peer']}", "size of a message", "latency (µs)"
    )
    figure.label(more, "longer than the oracle", "size of a message", "longer by (%)")
    for pair, shown in (
        (whole, series),
        (more, {name: _above(values, best_us) for name, values in series.items()}),
    ):
        figure.lines(pair, sizes, shown)
        _of_sizes(pair, sizes)
    whole.set_yscale("log")
    figure.plain_numbers(whole)
    # One fragment of a large message is off the scale and would hide the differences.
    more.set_ylim(-5, 1.2 * max(20.0, *_above(series["fixed 4 KiB"], best_us)))
    _stars(whole, classes, "measured_us", "in effect, live A/B", "k*")
    figure.legend_below(whole, ncols=2)
    figure.save(drawn, path)


def _draw_live(found: Json, path: Path) -> None:
    from careful.render import figure

    seen = [one for one in found["paths"] if any(each.get("live_us") for each in one["classes"])]
    if not seen:
        raise InputError(
            f"{path}: no path and no live message was measured: run `carefulctl tune auto --once`"
        )
    one, sizes = seen[0], [each["message_bytes_max"] for each in seen[0]["classes"]]
    title = f"latency of a message to {one['peer']} (the path is not measured)"
    drawn, pair = figure.axes(title, "size of a message", "latency (µs)")
    _stars(pair, one["classes"], "live_us", "live messages, mean since up", "o")
    _stars(pair, one["classes"], "measured_us", "in effect, live A/B", "k*")
    _of_sizes(pair, sizes)
    pair.set_yscale("log")
    figure.plain_numbers(pair)
    figure.legend_below(pair, ncols=2)
    figure.save(drawn, path)


def _of_sizes(pair: Axes, sizes: Sequence[int]) -> None:
    pair.set_xscale("log", base=2)
    pair.set_xticks(sizes[::3], [shown_bytes(size) for size in sizes[::3]])


def _stars(pair: Axes, classes: Sequence[Json], name: str, label: str, mark: str) -> None:
    points = [(each["message_bytes_max"], each.get(name)) for each in classes]
    seen = [(size, value) for size, value in points if value is not None]
    if seen:
        pair.plot(*zip(*seen, strict=True), mark, markersize=15, label=label, zorder=9)


def _above(values: Sequence[float], least: Sequence[float]) -> list[float]:
    return [100 * (value / low - 1) for value, low in zip(values, least, strict=True)]
