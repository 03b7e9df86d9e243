"""A path in virtual time for the controller: a pipeline, streams of messages, and a clock.

Stands in for a running instance: it measures, holds three versions of plans, and times messages by
class and version. Its pipeline may change with time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from careful.model import Pipeline, latency_us
from careful.plan import CLASS_COUNT, Limits, Plan, class_of
from careful.tuning.controller.policy import Controller
from careful.tuning.settings import NET_TX, STORE, Kick, Pulse, Value
from careful.tuning.store_model import Arrivals, Totals
from careful.tuning.verify import Counts

LIMITS = Limits(64, 3750)
START = Plan.fixed(3750)


@lru_cache(maxsize=4096)
def truth_us(pipeline: Pipeline, message_bytes: int, plan: Plan) -> float:
    """Returns the duration of a message on an idle path, µs."""
    return float(latency_us(pipeline, [float(one) for one in plan.sizes(message_bytes, LIMITS)]))


def figures(pipeline: Pipeline, error: float, random_: random.Random) -> dict[str, Any]:
    """Returns a black box's view of a pipeline with one bottleneck; error: of each figure,
    relative."""
    stage = pipeline.stages[pipeline.bottleneck(1024.0)]
    sum_g, sum_G = (
        sum(getattr(one, name) for one in pipeline.stages) for name in ("g_us", "G_us_per_KiB")
    )
    known = {
        ("sum_g", "us"): sum_g,
        ("sum_G", "us_per_KiB"): sum_G,
        ("g_b", "us"): stage.g_us,
        ("G_b", "us_per_KiB"): stage.G_us_per_KiB,
        ("sum_G_others", "us_per_KiB"): sum_G - stage.G_us_per_KiB,
    }
    found: dict[str, Any] = {"kind": "blackbox"}
    for (name, unit), value in known.items():
        seen = value * max(0.1, 1 + random_.gauss(0, error / 2))
        found |= {
            f"{name}_{unit}": seen,
            f"{name}_low_{unit}": seen - error * value,
            f"{name}_high_{unit}": seen + error * value,
        }
    regime = {name: value for name, value in found.items() if "_b_" in name or "others" in name}
    found["regimes"] = [{"low_bytes": 64.0, "high_bytes": 3750.0, **regime}]
    return found


def widened(found: dict[str, Any], share: float = 0.6) -> dict[str, Any]:
    """Returns the figures with intervals of this width to either side."""
    factors = {"_low_": 1 - share, "_high_": 1 + share}
    wide = {
        name: value * next((factors[end] for end in factors if end in name), 1.0)
        if isinstance(value, float)
        else value
        for name, value in found.items()
    }
    return wide | {"regimes": [widened(one, share) for one in found.get("regimes", [])]}


@dataclass
class Stream:
    """Messages of one size. every_s: mean interval; alive: whether it sends at a given time."""

    message_bytes: int
    every_s: float
    alive: Callable[[float], bool] = lambda _: True


@dataclass
class ToFile:
    """Messages of one size that the peer sends to a file here.

    frames: that they come in; came_us: from the first to the last; cost: g in µs and G in µs per
    KiB of the store at a time.
    """

    message_bytes: int
    every_s: float
    frames: int
    came_us: float
    cost: Callable[[float], tuple[float, float]]


def written(stream: ToFile, at: float, pulse: Pulse) -> tuple[float, list[tuple[float, float]]]:
    """Returns the duration of a message from its first frame until it is written, and its writes,
    µs."""
    g_us, G_us_per_KiB = stream.cost(at)
    count = stream.frames
    size = stream.message_bytes / count
    now_us, taken, writes = 0.0, 0, []
    while taken < count:
        due = min(taken + max(1, -(-pulse.store_bytes // int(size))), count)
        now_us = max(now_us, stream.came_us * (due - 1) / max(1, count - 1))
        ready = count if not stream.came_us else int(now_us / stream.came_us * (count - 1)) + 1
        ready = min(max(ready, due), count)
        nbytes = (ready - taken) * size
        took_us = g_us + G_us_per_KiB * nbytes / 1024
        writes.append((nbytes, took_us))
        now_us, taken = now_us + took_us, ready
    return now_us, writes


@dataclass
class LivePath:
    """Stands in for a running instance (careful.tuning.path.Path).

    pipeline: by time; noise: of a message's time, relative; error: of measured figures; measure_s,
        quick_s: durations of measurements.
    """

    pipeline: Callable[[float], Pipeline]
    streams: list[Stream]
    noise: float = 0.1
    error: float = 0.03
    measure_s: float = 0.3
    quick_s: float = 0.9
    seed: int = 1
    now: float = 1000.0
    lies: Callable[[Pipeline], Pipeline] = lambda one: one  # the measured figures of a pipeline
    took: Callable[[int, Plan, Kick], float] | None = (
        None  # fixed times instead of the pipeline's, µs
    )
    figureless: bool = False  # whether measurements find nothing
    pinned: set[int] = field(default_factory=set)
    measured_at: list[float] = field(default_factory=list)
    effects: list[tuple[float, tuple[Value, ...]]] = field(default_factory=list)
    files: list[ToFile] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.versions: list[list[Value]] = [
            [START] * CLASS_COUNT + [Pulse(65536)] * CLASS_COUNT + [Kick(65536)] * CLASS_COUNT
            for _ in range(3)
        ]
        self._came: dict[int, Arrivals] = {}
        self._writes: dict[int, tuple[int, Counts]] = {}
        self.active = 0
        self._pair = (0, 0)
        self._counts: dict[tuple[int, int], Counts] = {}
        self._due = [(self.now, k) for k in range(len(self.streams) + len(self.files))]
        heapq.heapify(self._due)
        self.sent = 0

    def clock(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Lets time pass and messages flow."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            at, k = heapq.heappop(self._due)
            if k < len(self.streams):
                stream: Stream | ToFile = self.streams[k]
                if self.streams[k].alive(at):
                    self._message(at, stream.message_bytes)
            else:
                stream = self.files[k - len(self.streams)]
                self._written(at, stream)
            heapq.heappush(self._due, (at + stream.every_s * self._random.uniform(0.5, 1.5), k))
        self.now = end

    def _message(self, at: float, message_bytes: int) -> None:
        index = class_of(message_bytes)
        plan = self.plan(index)
        if self.took:
            self._count(index, self.took(message_bytes, plan, self.kick(index)))
        else:
            self._count(index, truth_us(self.pipeline(at), message_bytes, plan))
        self.sent += 1

    def _noisy(self, took_us: float) -> Counts:
        took_ns = int(took_us * max(0.1, self._random.gauss(1, self.noise)) * 1000)
        return Counts(1, took_ns, took_ns**2)

    def _count(self, item: int, took_us: float) -> None:
        key = (item, self.active)
        self._counts[key] = self._counts.get(key, Counts()) + self._noisy(took_us)

    def _written(self, at: float, stream: ToFile) -> None:
        index = class_of(stream.message_bytes)
        took_us, writes = written(stream, at, self.pulse(index))
        self._count(STORE + index, took_us)
        came = Arrivals(1, stream.frames, stream.message_bytes, int(stream.came_us * 1000))
        self._came[index] = self._came.get(index, Arrivals()) + came
        for nbytes, write_us in [*writes[:3], *writes[3:][-1:]]:
            size = class_of(int(nbytes))
            before, counts = self._writes.get(size, (0, Counts()))
            self._writes[size] = (before + int(nbytes), counts + self._noisy(write_us))

    def plan(self, index: int) -> Plan:
        plan = self.versions[self.active][index]
        assert isinstance(plan, Plan)
        return plan

    def pulse(self, index: int) -> Pulse:
        pulse = self.versions[self.active][STORE + index]
        assert isinstance(pulse, Pulse)
        return pulse

    def kick(self, index: int) -> Kick:
        kick = self.versions[self.active][NET_TX + index]
        assert isinstance(kick, Kick)
        return kick

    # --- what the controller does

    def measure(self, quick: bool) -> tuple[dict[str, Any], Limits]:
        self.advance(self.quick_s if quick else self.measure_s)
        self.measured_at.append(self.now)
        if self.figureless:
            raise ValueError("the interval is wide")
        seen = self.lies(self.pipeline(self.now))
        return figures(seen, self.error, self._random), LIMITS

    def in_effect(self) -> tuple[Value, ...]:
        return tuple(self.versions[self.active])

    def by_hand(self) -> frozenset[int]:
        return frozenset(self.pinned)

    def limits(self) -> Limits:
        return LIMITS

    def offer(self, values: Mapping[int, Value]) -> tuple[int, int]:
        other = (self.active + 1) % 3
        self.versions[other] = list(self.versions[self.active])
        for item in values.keys() - self.pinned:
            self.versions[other][item] = values[item]
        self._pair = (self.active, other)
        return self._pair

    def flip(self) -> bool:
        if self.active not in self._pair:
            return False
        self.active = sum(self._pair) - self.active
        return True

    def settle(self, values: Mapping[int, Value]) -> None:
        other = (self.active + 1) % 3
        self.versions[other] = list(self.versions[self.active])
        for item in values.keys() - self.pinned:
            self.versions[other][item] = values[item]
        self.active = other
        self.effects.append((self.now, self.in_effect()))

    def set_by_hand(self, item: int, value: Value) -> None:
        """Sets values like `tune set`."""
        self.pinned.discard(item)
        self.settle({item: value})
        self.pinned.add(item)
        self._pair = (-1, -1)

    def live(self) -> dict[tuple[int, int], Counts]:
        return dict(self._counts)

    def stored(self) -> Totals:
        return Totals(dict(self._came), dict(self._writes))

    def wait(self, seconds: float) -> None:
        self.advance(seconds)


def scaled(pipeline: Pipeline, **factors: float) -> Pipeline:
    """Returns the pipeline with every g and G multiplied."""
    return Pipeline(
        tuple(
            replace(
                one,
                g_us=one.g_us * factors.get("g", 1),
                G_us_per_KiB=one.G_us_per_KiB * factors.get("G", 1),
            )
            for one in pipeline.stages
        )
    )


def run(one: Controller, on: LivePath, seconds: float) -> None:
    """Runs steps until this much time has passed."""
    until = on.now + seconds
    while on.now < until:
        on.advance(one.step())


def told(one: Controller, what: str) -> list[float]:
    """Returns the times of decisions."""
    return [each["at_s"] for each in one.state.decisions if each["what"] == what]


def verdicts(one: Controller) -> dict[int, str]:
    """Returns the last A/B of each class."""
    return {
        each["class"]: each["ab"]["verdict"]
        for decision in one.state.decisions
        for each in decision["classes"]
        if "ab" in each
    }
