"""The summary of a path measurement: round trips, a rate, and the bottleneck.

Owns the choice between a rate and a lower bound: an interval too wide for a figure gives a bound.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from careful.measure.outside.blackbox_result import Result
from careful.measure.outside.blackbox_rounds import OWN_PACE
from careful.measure.path.hops import Path
from careful.measure.path.host_stages import Stages
from careful.measure.statistics.estimate import Estimate
from careful.measure.statistics.line import RELATIVE_MAX


@dataclass(frozen=True)
class Answer:
    """Round trips at the smallest and the largest size, and the rate in frames of `size_bytes`.

    `trips`: (size in bytes, median or least round trip in µs); `rate_gbit_per_s`: None if not even
    a bound is known; `is_bound`: the rate is at least this; `bottleneck`: the slowest part, "" if
    it is unknown; `not_told`, `why_not`: names of the figures that are withheld, and the reason.
    """

    trips: Sequence[tuple[int, float]]
    size_bytes: int
    rate_gbit_per_s: float | None
    is_bound: bool
    bottleneck: str
    not_told: str
    why_not: str

    def figures(self) -> dict[str, object]:
        """Returns the answer for JSON."""
        rate = self.rate_gbit_per_s
        return {
            "round_trips": [
                {"size_bytes": size, "round_trip_us": round(us, 3)} for size, us in self.trips
            ],
            "rate_bytes": self.size_bytes,
            "rate_gbit_per_s": None if rate is None else round(rate, 6),
            "rate_is_bound": self.is_bound,
            "bottleneck": self.bottleneck or None,
            "not_told_reason": self.why_not,
        }


def _slowest(costs: dict[str, Estimate], size_bytes: int) -> tuple[float | None, str, str]:
    """Returns the rate through the slowest part, or None; its name, or "" and the reason."""
    ranked = sorted(costs, key=lambda name: -costs[name].value)
    first = costs[ranked[0]]
    rivals = [name for name in ranked[1:] if costs[name].high >= first.low]
    if first.value > 0 and first.relative <= RELATIVE_MAX and not rivals:
        return 8e-3 * size_bytes / first.value, ranked[0], ""
    most_us = max(cost.high for cost in costs.values())
    bound = 8e-3 * size_bytes / most_us if 0 < most_us < math.inf else None
    if rivals:
        text = f"{ranked[0]} and {rivals[0]} differ by less than their intervals"
    else:
        text = f"the time of {ranked[0]} is known to ±{first.half:.2g} µs only"
    at_best = all(one.is_at_best for one in (first, *(costs[name] for name in rivals)))
    more = "more time will not help" if at_best else "a quiet machine or more --time helps"
    return bound, "", f"{text}; {more}"


def of_path(path: Path, ends: Stages | None) -> Answer:
    """Returns pathchar's answer; the stages inside the hosts count if they were measured."""
    size_bytes = path.sizes_bytes[-1] if path.sizes_bytes else path.mtu_bytes
    costs: dict[str, Estimate] = {}
    for stage in ends.stages if ends else ():
        name = ", ".join(stage.names)
        is_hop = stage.names[0].startswith("hop")
        if stage.own and is_hop:  # propagation occupies nothing
            costs[name] = stage.own.slope_us_per_byte * size_bytes
        elif stage.own:
            costs[name] = stage.own.estimate_at(size_bytes)
    for segment in () if ends else path.segments:
        if segment.own:
            name = "hop " + ", ".join(map(str, segment.ttls))
            costs[name] = segment.own.slope_us_per_byte * size_bytes
    heard = [hop for hop in path.hops if hop.first_us]
    trips = []
    if heard:
        times = zip(heard[-1].sizes_bytes, heard[-1].times_us, strict=True)
        by_size: dict[int, list[float]] = {}
        for size, us in times:
            by_size.setdefault(int(size), []).append(us)
        ends_of = sorted({*sorted(by_size)[:1], *sorted(by_size)[-1:]})
        trips = [(size, statistics.median(by_size[size])) for size in ends_of]
        trips = trips or [(path.first_bytes, heard[-1].first_us)]
    if not costs:
        notes = [f"hop {hop.ttl}: {hop.note}" for hop in heard if hop.note]
        why_not = "; ".join(notes) or "too few probes were answered"
        return Answer(trips, size_bytes, None, False, "", "the rate and the bottleneck", why_not)
    rate, name, why_not = _slowest(costs, size_bytes)
    # A host needs less time for a frame of a train than for a single one.
    is_bound = not name.startswith("hop")
    return Answer(trips, size_bytes, rate, is_bound, name, "the bottleneck", why_not)


def of_blackbox(result: Result) -> Answer:
    """Returns the answer of a black box: the gap of a train of its largest frames is the rate."""
    regime = result.regimes[-1]
    size_bytes = int(regime.line.size_max_bytes)
    trips = [(int(size), us) for size, us in zip(*result.trip_minima, strict=True)]
    gap = regime.line.estimate_at(size_bytes)
    rate, name, _ = _slowest({"the bottleneck": gap}, size_bytes)
    ends = [trips[0], trips[-1]] if trips else []
    if ends and (rate is None or gap.value < OWN_PACE * result.own_gap_us):
        # Trains arrived all at once. But no stage takes longer than a whole round trip.
        size_bytes, most_us = ends[-1]
        rate, name = 8e-3 * size_bytes / most_us, ""
    return Answer(
        ends, size_bytes, rate, not name, "", "time in the other stages", result.why_no_others
    )
