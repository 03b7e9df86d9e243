"""Fixed-size plans from a black-box measurement (P1 section 5.3.2).

Two regressions give the bottleneck of each range of fragment sizes and the sums over all stages,
but not the stages. That is enough for theorem 1 and equation 10, not for ramps or a hierarchy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import numpy as np

from careful.errors import InputError, WithheldError
from careful.html import Grid, rendered
from careful.model.fixed import optimal_count
from careful.model.planner import Plan
from careful.model.rounding import equal_sizes
from careful.model.stages import (
    COST_US_MAX,
    KIB,
    MESSAGE_BYTES_MAX,
    Array,
    check_message_bytes,
    is_cost,
    shortened,
)
from careful.plan import Limits

#: A plan mentions the interval of a figure if half the interval exceeds this part of the figure.
WIDE = 0.5
#: The figures by their names in JSON, for people.
_WORDS = {
    "sum_g_us": "Σg of all stages",
    "sum_G_us_per_KiB": "ΣG of all stages",
    "sum_G_others_us_per_KiB": "ΣG of the other stages",
    "g_b_us": "the bottleneck's g",
    "G_b_us_per_KiB": "the bottleneck's G",
    "g_b_low_us": "the lower end of the bottleneck's g",
    "g_b_high_us": "the upper end of the bottleneck's g",
}


_SUMS = ("sum_g_us", "sum_G_us_per_KiB")
#: The costs that a regime needs.
_REGIME_COSTS = ("g_b_us", "G_b_us_per_KiB", "sum_G_others_us_per_KiB")


def _check_costs(entry: object, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(entry, name)
        if not is_cost(value):
            limit = f"must be a number from 0 to {COST_US_MAX:g}"
            raise InputError(f"{_WORDS[name]} is {shortened(value)}, {limit}")


@dataclass(frozen=True)
class Regime:
    """A range of fragment sizes and its bottleneck.

    low_bytes, high_bytes: the range, high may be infinite; g_b_us, G_b_us_per_KiB: costs of the
    bottleneck; sum_G_others_us_per_KiB: sum over all other stages; g_b_low_us, g_b_high_us: the
    interval of g_b. Raises ValueError for an empty range and for costs outside 0 to COST_US_MAX.
    """

    low_bytes: float
    high_bytes: float
    g_b_us: float
    G_b_us_per_KiB: float
    sum_G_others_us_per_KiB: float
    g_b_low_us: float
    g_b_high_us: float

    def __post_init__(self) -> None:
        high = self.high_bytes
        if not 0 <= self.low_bytes < high or MESSAGE_BYTES_MAX < high < math.inf:
            text = f"{shortened(self.low_bytes)} to {shortened(high)} bytes"
            raise InputError(f"{text} is not a range of fragment sizes")
        _check_costs(self, [field.name for field in fields(self)[2:]])

    @property
    def wide(self) -> bool:
        """Reports whether the interval of g_b is so wide that a plan must mention it."""
        return self.g_b_high_us - self.g_b_low_us > 2 * WIDE * self.g_b_us

    def counts(self, message_bytes: int) -> tuple[int, int]:
        """Returns the least and the most fragments of sizes in the range; least may be greater."""
        most = message_bytes // self.low_bytes if self.low_bytes else math.inf
        return max(1, math.ceil(message_bytes / self.high_bytes)), int(min(most, message_bytes))

    def best_counts(self, message_bytes: int, least: int, most: int, g_b_us: float) -> set[int]:
        """Returns floor and ceiling of theorem 1's count, within the bounds (P1 equation 12)."""
        real = optimal_count(message_bytes, g_b_us, self.sum_G_others_us_per_KiB / KIB)
        real = min(max(real, least), most)
        return {math.floor(real), math.ceil(real)}

    def __str__(self) -> str:
        if (self.low_bytes, self.high_bytes) == (0, math.inf):
            return "any size"
        return f"{self.low_bytes:.0f} to {self.high_bytes:.0f} bytes"


def equal_latency_us(
    message_bytes: float,
    k: float,
    sum_g_us: Array | float,
    g_b_us: Array | float,
    G_b_us_per_KiB: Array | float,
    sum_G_others_us_per_KiB: Array | float,
) -> Array | float:
    """Returns the latency with k equal fragments, µs, of a path or array of paths (P1 eq. 13)."""
    return (
        k * g_b_us
        + message_bytes / k * sum_G_others_us_per_KiB / KIB
        + np.maximum(sum_g_us - g_b_us, 0.0)
        + message_bytes * G_b_us_per_KiB / KIB
    )


@dataclass(frozen=True)
class BlackBox:
    """A pipeline seen from outside (P1 Table 2).

    sum_g_us, sum_G_us_per_KiB: sums over all stages, 0 to COST_US_MAX; regimes: ranges of fragment
    sizes with their bottlenecks, ascending; unknown: texts about ranges without a bottleneck.
    Raises ValueError for other values, for no regime, and if sum_g_us is below the lower end of a
    bottleneck's g, which the sum contains.
    """

    sum_g_us: float
    sum_G_us_per_KiB: float
    regimes: tuple[Regime, ...]
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_costs(self, ("sum_g_us", "sum_G_us_per_KiB"))
        if not self.regimes:
            raise InputError("no range of fragment sizes has a bottleneck")
        for regime in self.regimes:
            if self.sum_g_us < regime.g_b_low_us:
                raise InputError("Σg (the sum over all stages) is less than the g of one stage")

    def _repr_html_(self) -> str:
        columns = ("bottleneck of fragments of (bytes)", "g (µs)", "G (µs/KiB)")
        rows: list[tuple[str, float, float]] = [
            (f"{r.low_bytes:g} to {r.high_bytes:g}", r.g_b_us, r.G_b_us_per_KiB)
            for r in self.regimes
        ]
        rows.append(("all stages", self.sum_g_us, self.sum_G_us_per_KiB))
        return rendered([Grid("", columns, rows), *self.unknown])

    @classmethod
    def from_dict(cls, data: dict[str, object], origin: str = "") -> BlackBox:
        """Reads the JSON of `carefulctl measure blackbox`; further keys are ignored.

        Without "regimes", the top-level figures are the only regime, from low_bytes to high_bytes
        or for any size. Raises WithheldError with the measurement's own reason if it withholds a
        figure, ValueError for other faults.
        """
        try:
            entries = data.get("regimes", [data])
            if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
                raise InputError("'regimes' is not a list of objects")
            # If no regime has all costs, the first one gives the reason.
            usable = [e for e in entries if None not in map(e.get, _REGIME_COSTS)] or entries[:1]
            _check_withheld(data, usable[0] if usable else {}, origin)
            g_us, G_us_per_KiB = (_number(data, name) for name in _SUMS)
            regimes = [_regime(entry) for entry in usable]
            unknown = [_unused_range(entry) for entry in entries if entry not in usable]
            return cls(g_us, G_us_per_KiB, tuple(regimes), tuple(unknown))
        except WithheldError:
            raise
        except InputError as error:
            raise InputError(f"{origin}: {error}" if origin else str(error)) from None

    def latency_us(self, message_bytes: float, k: float) -> float:
        regime = self._at(message_bytes / k)
        costs = (regime.g_b_us, regime.G_b_us_per_KiB, regime.sum_G_others_us_per_KiB)
        return float(equal_latency_us(message_bytes, k, self.sum_g_us, *costs))

    def regime_at(self, size_bytes: float) -> int:
        """Returns the index of the regime that contains a size, or of the nearest regime."""
        outside = [max(r.low_bytes - size_bytes, size_bytes - r.high_bytes) for r in self.regimes]
        return outside.index(min(outside))

    def _at(self, size_bytes: float) -> Regime:
        return self.regimes[self.regime_at(size_bytes)]

    def plan(
        self, message_bytes: int, limits: Limits | None = None, fragments_count: int | None = None
    ) -> Plan:
        """Returns the best fixed size, in whole bytes.

        Each regime gives the numbers of fragments whose sizes lie in its range (P1 theorem 1 and
        section 5.3.2); the fastest of them is the plan. If no allowed number gives sizes in a
        measured range, the nearest regime is extrapolated, and the plan is marked as extrapolated.
        Raises ValueError if the limits forbid fragments_count.
        """
        check_message_bytes(message_bytes)
        least, most = (limits or Limits()).counts(message_bytes)
        if fragments_count is not None:
            if not least <= fragments_count <= most:
                raise InputError(f"{fragments_count} fragments: the limits allow {least} to {most}")
            least = most = fragments_count
        spans = list(self._spans(message_bytes, least, most))
        counts = {
            count
            for regime, low, high in spans
            for count in regime.best_counts(message_bytes, low, high, regime.g_b_us)
        }
        is_measured = bool(spans)
        if not is_measured:
            # Uses the count whose fragment size is nearest to the measured sizes.
            ends = [count for r in self.regimes for count in r.counts(message_bytes)]
            allowed = {least, most} | {min(max(count, least), most) for count in ends}
            counts = {min(allowed, key=lambda count: self._beyond(message_bytes / count))}
        k = min(sorted(counts), key=lambda count: self.latency_us(message_bytes, count))
        sizes = tuple(float(size) for size in equal_sizes(int(message_bytes), k))
        regime = self._at(message_bytes / k)
        notes = ["a black-box measurement can plan only equal fragments"]
        notes += self._remarks(message_bytes, k, is_measured, (least, most))
        return Plan(
            strategy="fixed",
            message_bytes=message_bytes,
            latency_us=self.latency_us(message_bytes, k),
            fragments_bytes=sizes,
            bottleneck=f"the one measured for fragments of {regime}",
            lower_bound_us=message_bytes * max(r.G_b_us_per_KiB for r in self.regimes) / KIB
            + self.sum_g_us,
            one_fragment_us=self.latency_us(message_bytes, 1),
            sizes_by_stage=(sizes,),
            note="; ".join(notes),
            extrapolated=not is_measured,
        )

    def _spans(
        self, message_bytes: int, least: int, most: int
    ) -> Iterator[tuple[Regime, int, int]]:
        """Yields each regime that allows counts within the bounds, with its least and most."""
        for regime in self.regimes:
            low, high = regime.counts(message_bytes)
            low, high = max(low, least), min(high, most)
            if low <= high:
                yield regime, low, high

    def holds(self, size_bytes: float) -> bool:
        return self._beyond(size_bytes) == 1

    def _beyond(self, size_bytes: float) -> float:
        """Returns the factor by which a size is outside the nearest regime; 1 inside a regime."""
        return min(
            max(r.low_bytes / size_bytes, size_bytes / r.high_bytes, 1.0) for r in self.regimes
        )

    def _ranges(self) -> str:
        joined: list[list[float]] = []
        for regime in self.regimes:
            if not joined or joined[-1][1] != regime.low_bytes:
                joined.append([regime.low_bytes, 0.0])
            joined[-1][1] = regime.high_bytes
        return " and ".join(f"{low:.0f} to {high:.0f} bytes" for low, high in joined)

    def _remarks(
        self, message_bytes: int, k: int, is_measured: bool, bounds: tuple[int, int]
    ) -> Iterator[str]:
        ranges = self._ranges()
        if not is_measured:
            yield f"extrapolated: measured were fragments of {ranges}"
        elif self._beyond(message_bytes) > 1:
            yield f"the time in one fragment is extrapolated: measured were fragments of {ranges}"
        regime = self._at(message_bytes / k)
        if regime.wide:
            low, high = regime.counts(message_bytes)
            low, high = max(low, bounds[0]), min(high, bounds[1])
            text = f"g_b is uncertain, {regime.g_b_low_us:.3g} to {regime.g_b_high_us:.3g} µs"
            if low < high:
                few, many = (
                    regime.best_counts(message_bytes, low, high, g_b_us)
                    for g_b_us in (regime.g_b_high_us, regime.g_b_low_us)
                )
                text += f": the best may be {min(few)} to {max(many)} fragments"
            yield text
        yield from self.unknown


def _check_withheld(data: dict[str, object], regime: dict[str, object], origin: str) -> None:
    """Raises WithheldError if a figure is null and the measurement gives a reason."""
    reason = _one_line(data.get("reason")) or _one_line(regime.get("reason"))
    missing = [name for name in _SUMS if data.get(name) is None]
    missing += [name for name in _REGIME_COSTS if regime.get(name) is None]
    if missing and reason:
        size = data.get("size_max_bytes")
        frame_bytes = size if type(size) is int and 0 < size <= MESSAGE_BYTES_MAX else 0
        named = ", ".join(_WORDS[name] for name in missing)
        raise WithheldError(origin, named, reason, frame_bytes)


def _unused_range(entry: dict[str, object]) -> str:
    low, high = (shortened(entry.get(name)) for name in ("low_bytes", "high_bytes"))
    text = f"{low} to {high} bytes are not used in plans, because they have no figures"
    reason = _one_line(entry.get("reason"))
    return f"{text} ({reason})" if reason else text


def _one_line(reason: object) -> str:
    return " ".join(reason.split())[:300] if isinstance(reason, str) else ""


def _regime(entry: dict[str, object]) -> Regime:
    values = [_number(entry, name) for name in _REGIME_COSTS]
    low = _number({"low_bytes": 0.0} | entry, "low_bytes")
    high = _number({"high_bytes": math.inf} | entry, "high_bytes")
    ends = [_number({name: values[0]} | entry, name) for name in ("g_b_low_us", "g_b_high_us")]
    if ends[1] >= 0:  # A difference may come out below 0 by chance; no cost is negative.
        ends[0], values[0] = max(ends[0], 0.0), max(values[0], 0.0)
    return Regime(low, high, *values, *ends)


def _number(data: dict[str, object], name: str) -> float:
    value = data.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value != value:
        raise InputError(f"'{name}' is missing or not a number")
    return value
