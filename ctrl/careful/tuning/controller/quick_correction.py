"""Corrects a quick measurement by the figures known before.

If other traffic shares the path, a quick measurement can show three patterns that no unshared
pipeline has. In each, the stages as known before are kept, except for what changed.
"""

from __future__ import annotations

import statistics

from careful.jsonout import Json
from careful.model.blackbox import BlackBox, Regime
from careful.model.stages import KIB
from careful.tuning.propose import MOVED_MIN, Measured

#: A gap that changes by at most GAP_MAX is the same; a round trip is longer by LONGER_MIN or more.
GAP_MAX, LONGER_MIN = 0.15, 0.1


def waiting(before: Measured, figures: Json, seen: Json) -> Json:
    """Corrects figures of a path on which our frames queue behind another stream.

    The pattern: all round trips take longer, even the shortest of each size, but trains are as
    dense as before. So the queueing is a delay, whatever the fragments.

    before: the known path; figures: the figures of `before`; seen: the quick measurement.

    Returns the figures with that delay added to the sum of g; {} without this pattern.
    """
    longer = _longer_us(before, seen)
    if not longer or any(late_us < LONGER_MIN * known_us for late_us, known_us in longer):
        return {}
    raised = float(figures["sum_g_us"]) + statistics.median(late_us for late_us, _ in longer) / 2
    return _moved_to(figures, "sum_g", "us", raised)


def is_as_before(before: Measured, seen: Json) -> bool:
    """Reports whether probes that met no other frames found the path as before.

    The pattern: trains are as dense as before, and the shortest round trip of a size above the
    smallest takes as long as before. Round trips of another size may all have met frames of a
    stream that pauses now and then, so that a line through all sizes would show other stages.

    before: the known path; seen: the quick measurement.
    """
    longer = [late_us / known_us for late_us, known_us in _longer_us(before, seen)]
    return min(longer, default=-1.0) > -LONGER_MIN and min(longer[1:], default=1.0) < LONGER_MIN


def _longer_us(before: Measured, seen: Json) -> list[tuple[float, float]]:
    """Compares the shortest round trip of each size, smallest first, with the known path.

    Returns its extra time and the expected time, µs; [] if trains are not as dense as before.
    """
    now = BlackBox.from_dict(dict(seen)).regimes[0]
    for size_bytes in ((now.low_bytes + now.high_bytes) / 2, now.high_bytes):
        known_us = _gap_us(_regime(before, size_bytes), size_bytes)
        if abs(_gap_us(now, size_bytes) - known_us) > GAP_MAX * known_us:
            return []
    longer = []
    for one in seen.get("round_trip_minima", []):
        bytes_us = before.box.sum_G_us_per_KiB * one["size_bytes"] / KIB
        expected_us = 2 * before.box.sum_g_us + bytes_us
        longer.append((one["least_us"] - expected_us, expected_us))
    return longer


def _regime(path: Measured, size_bytes: float) -> Regime:
    return path.box.regimes[path.box.regime_at(size_bytes)]


def _gap_us(regime: Regime, size_bytes: float) -> float:
    return regime.g_b_us + regime.G_b_us_per_KiB * size_bytes / KIB


def grown(before: Measured, figures: Json) -> Json:
    """Raises the sums of a quick measurement by the growth of the bottleneck.

    The pattern: the bottleneck has grown and the sum has not. Round trips find gaps in a stream
    that shares the path (P1 section 5.1), but trains do not. If one stage has grown, the sum of
    the other stages is at least what it was before.
    """
    now = BlackBox.from_dict(dict(figures))
    new = now.regimes[0]
    old = _regime(before, (new.low_bytes + new.high_bytes) / 2)
    if _gap_us(new, new.high_bytes) < (1 + MOVED_MIN) * _gap_us(old, new.high_bytes):
        return dict(figures)
    others = max(new.sum_G_others_us_per_KiB, old.sum_G_others_us_per_KiB)
    g_us = max(now.sum_g_us, before.box.sum_g_us - old.g_b_us + new.g_b_us)
    regime = _moved_to(figures["regimes"][0], "sum_G_others", "us_per_KiB", others)
    raised = _moved_to(figures, "sum_G_others", "us_per_KiB", others)
    raised = _moved_to(raised, "sum_g", "us", g_us)
    raised = _moved_to(
        raised, "sum_G", "us_per_KiB", max(now.sum_G_us_per_KiB, others + new.G_b_us_per_KiB)
    )
    return {**raised, "regimes": [regime]}


def _moved_to(entry: Json, name: str, unit: str, value: float) -> Json:
    more = value - float(entry[f"{name}_{unit}"])
    ends = {f"{name}_{end}{unit}": entry[f"{name}_{end}{unit}"] for end in ("", "low_", "high_")}
    return {**entry, **{key: end + more for key, end in ends.items()}}
