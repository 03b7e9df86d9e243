"""What a glance at a path says beside what was known of it.

Owns two ways in which round trips and trains of a path that others use do not fit a pipeline that
has it for itself: then what is known of the stages holds, but for what changed. Pure. Calls model.
"""

from __future__ import annotations

import statistics

from careful.jsonout import Json
from careful.model.blackbox import BlackBox, Regime
from careful.model.stages import KIB
from careful.tuning.propose import MOVED_MIN, Measured

#: A gap is as it was up to this share; round trips are longer by more than this.
GAP_MAX, LONGER_MIN = 0.15, 0.1


def waiting(before: Measured, figures: Json, seen: Json) -> Json:
    """Figures of a path whose frames wait for others', as somebody else's stream makes them.

    All round trips take longer, even the least of each size, while trains are as dense as they
    were: they stand in the queue as a whole. So it is a delay, whatever a message is cut into.

    Args:
        before: the path as it was known.
        figures: those that it was made of.
        seen: what a glance says.

    Returns:
        The figures with that delay in their sum of g; {}: it is not so.
    """
    now = BlackBox.from_dict(dict(seen)).regimes[0]
    for size_bytes in ((now.low_bytes + now.high_bytes) / 2, now.high_bytes):
        known_us = _gap_us(_regime(before, size_bytes), size_bytes)
        if abs(_gap_us(now, size_bytes) - known_us) > GAP_MAX * known_us:
            return {}
    longer = []
    for one in seen.get("round_trip_minima", []):
        there_us = before.box.sum_G_us_per_KiB * one["size_bytes"] / KIB
        expected_us = 2 * before.box.sum_g_us + there_us
        longer.append(one["least_us"] - expected_us)
        if longer[-1] < LONGER_MIN * expected_us:
            return {}
    if not longer:
        return {}
    raised = float(figures["sum_g_us"]) + statistics.median(longer) / 2
    return _with(figures, "sum_g", "us", raised)


def _regime(path: Measured, size_bytes: float) -> Regime:
    return path.box.regimes[path.box.regime_at(size_bytes)]


def _gap_us(one: Regime, size_bytes: float) -> float:
    return one.g_b_us + one.G_b_us_per_KiB * size_bytes / KIB


def grown(before: Measured, figures: Json) -> Json:
    """Figures whose sums hold what their bottleneck has grown by.

    Round trips find gaps in a stream that shares the path (P1 section 5.1), trains do not: the
    bottleneck seems to grow, and the sum does not. If one stage grew, the sum of the others is
    that of before at least, whichever it was.
    """
    now = BlackBox.from_dict(dict(figures))
    one = now.regimes[0]
    old = _regime(before, (one.low_bytes + one.high_bytes) / 2)
    if _gap_us(one, one.high_bytes) < (1 + MOVED_MIN) * _gap_us(old, one.high_bytes):
        return dict(figures)
    others = max(one.sum_G_others_us_per_KiB, old.sum_G_others_us_per_KiB)
    g_us = max(now.sum_g_us, before.box.sum_g_us - old.g_b_us + one.g_b_us)
    regime = _with(figures["regimes"][0], "sum_G_others", "us_per_KiB", others)
    found = _with(figures, "sum_G_others", "us_per_KiB", others)
    found = _with(found, "sum_g", "us", g_us)
    found = _with(
        found, "sum_G", "us_per_KiB", max(now.sum_G_us_per_KiB, others + one.G_b_us_per_KiB)
    )
    return {**found, "regimes": [regime]}


def _with(entry: Json, name: str, unit: str, value: float) -> Json:
    more = value - float(entry[f"{name}_{unit}"])
    ends = {f"{name}_{end}{unit}": entry[f"{name}_{end}{unit}"] for end in ("", "low_", "high_")}
    return {**entry, **{key: end + more for key, end in ends.items()}}
