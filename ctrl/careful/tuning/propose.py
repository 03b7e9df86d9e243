"""Proposes plans for a measured path and thresholds for a store, with the uncertainty of the gain.

Many possible paths are drawn at random from the measurement's intervals. Each drawn path gives the
latencies of the plan in effect and of the best plan, so an error that both share cancels. All costs
are drawn independently. A line's g and G are in fact anticorrelated, so a gain is less uncertain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle

import numpy as np

from careful.errors import InputError
from careful.jsonout import Json
from careful.model.blackbox import BlackBox, Regime, equal_latency_us
from careful.model.fixed import class_plan
from careful.model.latency import fixed_latency_us, latency_us
from careful.model.measurements import Hops, combined
from careful.model.stages import Array, Pipeline
from careful.model.tunemap import class_ramp
from careful.plan import CLASS_COUNT, FRAME_LIMITS, Limits, Plan
from careful.tuning.settings import STORE, Pulse, Value, class_bytes
from careful.tuning.store_model import PACES, Store

#: Least gain that is worth a change, as a share of the latency.
GAIN_MIN = 0.02
#: Least difference of two measurements that means another path, as a share of the latency.
MOVED_MIN = 0.1
#: Largest error of a figure from a precise measurement, as a share of the latency.
SAME_MAX = 0.15
#: Why a plan that may gain is not set.
UNSURE = "its gain is within the prediction's uncertainty"
#: Number of paths drawn from a measurement's intervals.
DRAWS = 200
#: Half of a 95 % interval, in standard errors.
_SIGMAS = 1.96
_TOP = ("sum_g_us", "sum_G_us_per_KiB")
_COSTS = ("g_b_us", "G_b_us_per_KiB", "sum_G_others_us_per_KiB")


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def figures(self, name: str, unit: str) -> dict[str, float]:
        """Returns NAME_UNIT, NAME_low_UNIT and NAME_high_UNIT, for JSON."""
        ends = {"": self.value, "low_": self.low, "high_": self.high}
        return {f"{name}_{end}{unit}": round(value, 4) for end, value in ends.items()}


@dataclass(frozen=True)
class Measured:
    """A path as it was measured.

    box: the figures; draws: paths drawn from the intervals; limits: payload of a frame; ordered:
    the stages in their order, if pathchar has measured it.
    """

    box: BlackBox
    draws: tuple[BlackBox, ...]
    limits: Limits = FRAME_LIMITS
    ordered: Pipeline | None = None

    def latency_us(self, message_bytes: int, plan: Plan) -> Interval:
        """Predicts a message's latency under a plan."""
        return _interval_of(self._drawn_us(message_bytes, plan))

    def gain_us(self, message_bytes: int, now: Plan, then: Plan) -> Interval:
        """Predicts the latency that `then` saves over `now`."""
        was, will_be = (self._drawn_us(message_bytes, plan) for plan in (now, then))
        return _interval_of(was - will_be)

    @cached_property
    def _costs(self) -> tuple[Array, Array]:
        sums = [box.sum_g_us for box in self.draws]
        costs = [
            [[getattr(regime, n) for n in _COSTS] for regime in box.regimes] for box in self.draws
        ]
        return np.array(sums), np.array(costs)

    def _drawn_us(self, message_bytes: int, plan: Plan) -> Array:
        """Returns a message's latency, and that of each draw, vectorised for speed.

        A black box does not know the order of the stages. Without pathchar's, the fragments of a
        ramp count as equal (P1 equation 10); with it, a ramp has its share of their latency.
        """
        sizes = plan.sizes(message_bytes, self.limits)
        sum_g_us, costs = self._costs
        regime = costs[:, self.box.regime_at(message_bytes / len(sizes))]
        drawn = equal_latency_us(message_bytes, len(sizes), sum_g_us, *regime.T)
        all_us = np.array([self.box.latency_us(message_bytes, len(sizes)), *np.asarray(drawn)])
        if self.ordered is None or plan.is_fixed:
            return all_us
        ramp_us = latency_us(self.ordered, np.array(sizes, dtype=np.float64))
        equal_us = fixed_latency_us(self.ordered, message_bytes, [len(sizes)])[0]
        return all_us * float(ramp_us / equal_us)

    def ramp(self, message_bytes: int, over: Plan) -> Plan | None:
        """Returns a class's ramp that gains enough over equal fragments, or None."""
        ramp = self.ordered and class_ramp(self.ordered, message_bytes, self.limits)
        return ramp if ramp and self.gain_us(message_bytes, over, ramp).value > 0 else None


def _interval(value: float, drawn: Array) -> Interval:
    low, high = np.percentile(drawn, (2.5, 97.5))
    return Interval(value, min(float(low), value), max(float(high), value))


def measured(figures: Json, limits: Limits = FRAME_LIMITS) -> Measured:
    """Reads the figures of `measure blackbox` and draws paths from their intervals.

    figures: `order` is pathchar's measurement of the path, if there is one. Raises ValueError with
    the reason if there are no figures.
    """
    box = BlackBox.from_dict(dict(figures))
    ordered = None
    with suppress(InputError):  # pathchar's figures and these do not give a pipeline
        if order := figures.get("order"):
            whole = combined([Hops.from_dict(order, "pathchar"), box])
            ordered = whole.sequential() if isinstance(whole, Pipeline) else None
    spreads = _spreads(figures)
    random = np.random.default_rng(1)
    draws = tuple(_drawn(box, spreads, random) for _ in range(DRAWS))
    return Measured(box, draws, limits, ordered)


def _spreads(figures: Json) -> dict[tuple[float, str], float]:
    """Returns the standard error of each cost, by its regime's low end; -1: the whole path."""
    spreads = {(-1.0, name): _spread(figures, name) for name in _TOP}
    for entry in figures.get("regimes", [figures]):
        low = float(entry.get("low_bytes") or 0.0)
        spreads |= {(low, name): _spread(entry, name) for name in _COSTS}
    return spreads


def _spread(entry: Json, name: str) -> float:
    unit = "us_per_KiB" if name.endswith("_KiB") else "us"
    head = name.removesuffix(f"_{unit}")
    low, high = (entry.get(f"{head}_{end}_{unit}") for end in ("low", "high"))
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return 0.0
    return max(float(high) - float(low), 0.0) / 2 / _SIGMAS


def _drawn(
    box: BlackBox, spreads: Mapping[tuple[float, str], float], random: np.random.Generator
) -> BlackBox:

    def draw(value: float, key: tuple[float, str]) -> float:
        return max(0.0, value + float(random.standard_normal()) * spreads.get(key, 0.0))

    regimes = tuple(_drawn_regime(regime, draw) for regime in box.regimes)
    g_us, G_us_per_KiB = (draw(getattr(box, name), (-1.0, name)) for name in _TOP)
    # The sum must include the bottleneck's g, whatever was drawn.
    return BlackBox(max(g_us, *(regime.g_b_us for regime in regimes)), G_us_per_KiB, regimes)


def _drawn_regime(regime: Regime, draw: Callable[[float, tuple[float, str]], float]) -> Regime:
    g_us, G, others = (draw(getattr(regime, name), (regime.low_bytes, name)) for name in _COSTS)
    return Regime(regime.low_bytes, regime.high_bytes, g_us, G, others, g_us, g_us)


@dataclass(frozen=True)
class Row:
    """A proposal for an item of a message class.

    index: the item; now, best: the value in effect, the best value; gain_us: time that the best
    value saves; why_not: why it is not worth a change; "": it is.
    """

    index: int
    message_bytes: int
    now: Value
    best: Value
    now_us: Interval
    best_us: Interval
    gain_us: Interval
    bottleneck: Mapping[str, float]
    why_not: str = ""

    def as_dict(self) -> Json:
        return {
            "class": self.index % STORE,
            "message_bytes_max": self.message_bytes,
            "now": self.now.as_dict(),
            "best": self.best.as_dict(),
            **self.now_us.figures("now", "us"),
            **self.best_us.figures("best", "us"),
            **self.gain_us.figures("gain", "us"),
            "bottleneck": dict(self.bottleneck),
            "why_not": self.why_not,
        }


def table(path: Measured, now: Sequence[Value]) -> list[Row]:
    """Proposes plans for all sixteen classes, smallest messages first.

    now: values in effect, plans first.
    """
    return [
        _row(path, index, plan)
        for index, plan in enumerate(now[:CLASS_COUNT])
        if isinstance(plan, Plan)
    ]


def store_table(store: Store, now: Sequence[Value]) -> list[Row]:
    """Proposes the store's thresholds for the classes with messages; now: values in effect."""
    rows = []
    for index in sorted(store.came):
        pulse = now[STORE + index]
        if isinstance(pulse, Pulse):
            rows.append(_store_row(store, index, pulse))
    return rows


def _store_row(store: Store, index: int, now: Pulse) -> Row:
    best = store.best(index)
    costs = ((store.g_us, store.G_us_per_byte), *store.draws)
    before, after = (
        np.array(
            [
                store.latency_us(index, one, each, pace)
                for each, pace in zip(costs, cycle(PACES), strict=False)
            ]
        )
        for one in (now, best)
    )
    row = Row(
        STORE + index,
        class_bytes(index),
        now,
        best,
        _interval_of(before),
        _interval_of(after),
        _interval_of(before - after),
        {"g_us": store.g_us, "G_us_per_KiB": store.G_us_per_byte * 1024},
    )
    if not store.told_apart:
        return replace(row, why_not="all writes have one size, which does not separate g from G")
    return _with_reason(row)


def _interval_of(values: Array) -> Interval:
    """Returns the first value with the interval of the others, which are its draws."""
    return _interval(float(values[0]), values)


def _row(path: Measured, index: int, now: Plan) -> Row:
    message_bytes = class_bytes(index)
    within = replace(path.limits, min_bytes=min(path.limits.min_bytes, message_bytes))
    fixed = path.box.plan(message_bytes, within)
    best = class_plan(message_bytes, fixed.fragments_count, path.limits, path.box.latency_us)
    best = path.ramp(message_bytes, best) or best
    now_us, gain = path.latency_us(message_bytes, now), path.gain_us(message_bytes, now, best)
    row = Row(
        index,
        message_bytes,
        now,
        best,
        now_us,
        path.latency_us(message_bytes, best),
        gain,
        _bottleneck(path.box, message_bytes / fixed.fragments_count),
    )
    if fixed.extrapolated:
        return replace(row, why_not="its fragment sizes were not measured")
    return _with_reason(row)


def _with_reason(row: Row) -> Row:
    if row.gain_us.value < GAIN_MIN * row.now_us.value:
        return replace(row, why_not=f"it gains less than {GAIN_MIN:.0%}")
    if row.gain_us.low <= 0:
        return replace(row, why_not=UNSURE)
    return row


def _bottleneck(box: BlackBox, size_bytes: float) -> dict[str, float]:
    regime = box.regimes[box.regime_at(size_bytes)]
    return {"g_us": regime.g_b_us, "G_us_per_KiB": regime.G_b_us_per_KiB}


def worth(rows: Sequence[Row], but: frozenset[int] = frozenset()) -> dict[int, Row]:
    """Returns the proposals that are worth a change; but: items set by hand."""
    return {row.index: row for row in rows if not row.why_not and row.index not in but}


def proposed(
    path: Measured, store: Store | None, values: Sequence[Value], but: frozenset[int]
) -> dict[int, Row]:
    """Returns all proposals that are worth a change; store: None if unknown."""
    return worth(table(path, values) + (store_table(store, values) if store else []), but)


def unsure(path: Measured, values: Sequence[Value], classes: Collection[int]) -> bool:
    """Reports whether some classes' gains are within the prediction's uncertainty."""
    return any(row.why_not == UNSURE and row.index in classes for row in table(path, values))


def moved(
    before: Measured,
    after: Measured,
    values: Sequence[Value],
    classes: Collection[int] = range(CLASS_COUNT),
) -> bool:
    """Reports whether two measurements predict different latencies for the plans in effect.

    The intervals of a class must not overlap, and its values must differ by more than MOVED_MIN.
    """
    for was, now in _latencies(before, after, values, classes):
        apart = was.high < now.low or now.high < was.low
        if apart and abs(now.value - was.value) > MOVED_MIN * was.value:
            return True
    return False


def same(
    before: Measured, after: Measured, values: Sequence[Value], classes: Collection[int]
) -> bool:
    """Reports whether the second measurement confirms the latencies of some classes."""
    return all(
        (1 - SAME_MAX) * was.value <= now.low and now.high <= (1 + SAME_MAX) * was.value
        for was, now in _latencies(before, after, values, classes)
    )


def _latencies(
    before: Measured, after: Measured, values: Sequence[Value], classes: Collection[int]
) -> Iterator[tuple[Interval, Interval]]:
    for index in classes:
        plan = values[index]
        assert isinstance(plan, Plan)
        nbytes = class_bytes(index)
        was, now = (path.latency_us(nbytes, plan) for path in (before, after))
        yield was, now
