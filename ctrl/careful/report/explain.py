"""What `tune explain` prints and draws: what is in effect on a path, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from careful.report.tables import table
from careful.tuning.verify import MEASURES
from careful.units import shown_bytes

#: Decisions that people are shown, the newest first.
DECISIONS = 5


def text(found: dict[str, Any]) -> str:
    """All paths of an instance, for people."""
    pid = found["tuner_pid"]
    head = f"instance {found['instance']}: " + (
        f"tuned by process {pid}" if pid else "nobody tunes it (carefulctl tune auto)"
    )
    paths = [_path(one) for one in found["paths"]] or ["no peers"]
    return "\n\n".join([head, *paths])


def _path(one: dict[str, Any]) -> str:
    parts = [_table(one), f"measured: {MEASURES}", *map(_store, one["stores"])]
    parts.append(_how(one["measurement"]))
    if one["decisions"]:
        parts.append("last decisions:")
        newest = reversed(one["decisions"][-DECISIONS:])
        parts += [f"  {ago(each['ago_s'])}: {decision(each)}" for each in newest]
    return "\n".join(parts)


def _table(one: dict[str, Any]) -> str:
    rows = []
    low = 0
    for each in one["classes"]:
        most = each["message_bytes_max"]
        last = each is one["classes"][-1]
        rows.append(
            (
                f"from {low}" if last else f"{low} … {most}",
                cut(each["plan"]),
                _interval(each, "predicted"),
                _number(each["measured_us"]),
                each.get("bottleneck", "-"),
                each["standing"],
            )
        )
        low = most + 1
    columns = ["message (bytes)", "fragments (bytes)", "predicted (µs)", "measured (µs)"]
    columns += ["bottleneck", "standing"]
    return table(f"to {one['peer']} ({one['address']})", columns, rows)


def _store(each: dict[str, Any]) -> str:
    """A store's threshold, of messages that the peer sends."""
    size, least = shown_bytes(each["message_bytes_max"]), each["store_bytes"]
    took = each["measured_us"]
    measured = "" if took is None else f", {_number(took)} µs"
    return (
        f"{size} from there to files: writes of {least} bytes or more: {each['standing']}{measured}"
    )


def cut(plan: dict[str, int]) -> str:
    """A plan in a word or two."""
    fixed = (plan["ratio_q16"], plan["step_bytes"]) == (1 << 16, 0)
    fixed = fixed and (plan["down_ratio_q16"], plan["down_step_bytes"]) == (1 << 16, 0)
    if fixed:
        return str(plan["first_bytes"])
    return f"{plan['first_bytes']}, rising to {plan['peak_bytes']}"


def _interval(each: dict[str, Any], name: str) -> str:
    if f"{name}_us" not in each:
        return "-"
    half = (each[f"{name}_high_us"] - each[f"{name}_low_us"]) / 2
    return f"{_number(each[f'{name}_us'])} ±{_number(half)}"


def _number(value: float | None) -> str:
    """With four digits at least, and no exponent."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _how(measurement: dict[str, Any] | None) -> str:
    """How the figures were come by, and when."""
    if measurement is None:
        return "not measured: nothing is predicted"
    took = f"{measurement['frames_count']} frames in {measurement['elapsed_s']:.1f} s"
    when = f"{ago(measurement['ago_s'])}, {measurement['why']}"
    said = f"the path was measured {when}, by {measurement['by']}: {took}"
    return "\n".join([said, *(f"  {note}" for note in measurement["notes"])])


def ago(seconds: float) -> str:
    """A time that has passed, in words."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def changed(each: dict[str, Any]) -> str:
    """What a decision does to a class."""
    size = shown_bytes(each["message_bytes_max"])
    if each.get("sink") == "store":
        before, after = (each[side]["store_bytes"] for side in ("before", "after"))
        return f"{size}, to files: writes of {before} → {after} bytes or more"
    return f"{size}: {cut(each['before'])} → {cut(each['after'])} bytes"


def decision(one: dict[str, Any]) -> str:
    """A decision in a line; what is the same of all classes is said once."""
    said = [_evidence(each) for each in one["classes"]]
    alike = len(set(said)) == 1 < len(said)
    parts = [str(one["what"])]
    for each, text in zip(one["classes"], said, strict=True):
        parts.append(changed(each) + (f" ({text})" if text and not alike else ""))
    if alike and said[0]:
        parts.append(said[0])
    return "; ".join([*parts, one["why"]] if one["why"] else parts)


def _evidence(each: dict[str, Any]) -> str:
    figures = each.get("ab") or each.get("prediction")
    return str(figures["said"]) if figures else ""


def draw(found: dict[str, Any], path: Path) -> None:
    """Latency over the size of a message: one fragment, fixed 4 KiB, and what is in effect.

    Of the first path that was measured.

    Raises:
        ValueError: none was.
    """
    from careful.report import figure

    one = next((each for each in found["paths"] if each["measurement"]), None)
    if one is None:
        raise ValueError(f"{path}: no path was measured: carefulctl tune auto --once")
    classes = one["classes"]
    sizes = [each["message_bytes_max"] for each in classes]
    drawn, pair = figure.axes(
        f"to {one['peer']}: what a message takes", "message (bytes)", "latency (µs)"
    )
    series: dict[str, Sequence[float]] = {
        "one fragment": [each["one_fragment_us"] for each in classes],
        "fixed 4 KiB": [each["fixed_4KiB_us"] for each in classes],
        "in effect, predicted": [each["predicted_us"] for each in classes],
    }
    figure.lines(pair, sizes, series)
    live = [(s, each["measured_us"]) for s, each in zip(sizes, classes, strict=True)]
    seen = [(size, value) for size, value in live if value is not None]
    if seen:
        pair.plot(*zip(*seen, strict=True), "k*", markersize=12, label="in effect, live A/B")
    pair.set_xscale("log", base=2)
    pair.set_yscale("log")
    figure.legend_below(pair, ncols=2)
    figure.save(drawn, path)
