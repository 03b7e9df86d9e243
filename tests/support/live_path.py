"""A path in virtual time for the controller: a pipeline, streams of messages, and a clock.

Stands in for a running instance: it measures, holds three versions of plans, and counts what
messages take by class and version. Its pipeline may change with time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from careful.model import Pipeline, latency_us
from careful.model.stages import Limits
from careful.model.tunemap import CLASS_COUNT, TunePlan, class_of
from careful.tuning.verify import Counts

LIMITS = Limits(64, 3750)
START = TunePlan.fixed(3750)


@lru_cache(maxsize=4096)
def truth_us(pipeline: Pipeline, message_bytes: int, plan: TunePlan) -> float:
    """What a message takes on an idle path, µs."""
    return float(latency_us(pipeline, [float(one) for one in plan.sizes(message_bytes, LIMITS)]))


def figures(pipeline: Pipeline, error: float, random_: random.Random) -> dict[str, Any]:
    """What a black box sees of a pipeline with one bottleneck; error: of each figure, relative."""
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


@dataclass
class Stream:
    """Messages of one size. every_s: on average; alive: whether it sends at a time."""

    message_bytes: int
    every_s: float
    alive: Callable[[float], bool] = lambda _: True


@dataclass
class LivePath:
    """Stands for a running instance (careful.tuning.decide.Path).

    pipeline: at a time; noise: of a message's time, relative; error: of a measurement's figures;
    measure_s, quick_s: how long one takes.
    """

    pipeline: Callable[[float], Pipeline]
    streams: list[Stream]
    noise: float = 0.1
    error: float = 0.03
    measure_s: float = 0.3
    quick_s: float = 0.9
    seed: int = 1
    now: float = 1000.0
    lies: Callable[[Pipeline], Pipeline] = lambda one: one  # what is measured of a pipeline
    pinned: set[int] = field(default_factory=set)
    measured_at: list[float] = field(default_factory=list)
    effects: list[tuple[float, tuple[TunePlan, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.versions = [[START] * CLASS_COUNT for _ in range(3)]
        self.active = 0
        self._pair = (0, 0)
        self._counts: dict[tuple[int, int], Counts] = {}
        self._due = [(self.now, k) for k in range(len(self.streams))]
        heapq.heapify(self._due)
        self.sent = 0

    def clock(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Time passes, and messages with it."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            at, k = heapq.heappop(self._due)
            stream = self.streams[k]
            if stream.alive(at):
                self._message(at, stream.message_bytes)
            heapq.heappush(self._due, (at + stream.every_s * self._random.uniform(0.5, 1.5), k))
        self.now = end

    def _message(self, at: float, message_bytes: int) -> None:
        index = class_of(message_bytes)
        took_us = truth_us(self.pipeline(at), message_bytes, self.versions[self.active][index])
        took_ns = int(took_us * max(0.1, self._random.gauss(1, self.noise)) * 1000)
        one = Counts(1, took_ns, took_ns**2)
        key = (index, self.active)
        self._counts[key] = self._counts.get(key, Counts()) + one
        self.sent += 1

    def plan(self, index: int) -> TunePlan:
        return self.versions[self.active][index]

    # --- what the controller does

    def measure(self, quick: bool) -> tuple[dict[str, Any], Limits]:
        self.advance(self.quick_s if quick else self.measure_s)
        self.measured_at.append(self.now)
        seen = self.lies(self.pipeline(self.now))
        return figures(seen, self.error, self._random), LIMITS

    def in_effect(self) -> tuple[TunePlan, ...]:
        return tuple(self.versions[self.active])

    def by_hand(self) -> frozenset[int]:
        return frozenset(self.pinned)

    def offer(self, plans: Mapping[int, TunePlan]) -> tuple[int, int]:
        other = (self.active + 1) % 3
        self.versions[other] = list(self.versions[self.active])
        for index, plan in plans.items():
            self.versions[other][index] = plan
        self._pair = (self.active, other)
        return self._pair

    def flip(self) -> bool:
        if self.active not in self._pair:
            return False
        self.active = sum(self._pair) - self.active
        return True

    def settle(self, plans: Mapping[int, TunePlan]) -> None:
        others = (one for one in (0, 1, 2) if one not in (self.active, *self._pair))
        other = next(others, (self.active + 1) % 3)
        self.versions[other] = list(self.versions[self.active])
        for index, plan in plans.items():
            self.versions[other][index] = plan
        self.active = other
        self.effects.append((self.now, self.in_effect()))

    def set_by_hand(self, index: int, plan: TunePlan) -> None:
        """As `tune set` does."""
        self.pinned.add(index)
        self.settle({index: plan})
        self._pair = (-1, -1)

    def live(self) -> dict[tuple[int, int], Counts]:
        return dict(self._counts)
