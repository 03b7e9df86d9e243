"""Fakes blackbox's two ends in virtual time: a pipeline of stages with known (g, G)."""

from __future__ import annotations

import random

from careful.measure.outside.blackbox import BlackBox, Options
from careful.measure.outside.blackbox_result import Result
from careful.measure.statistics.oneway import Trip

#: GAM × 100 (P1 Table 1), µs and µs per KiB.
GAM = ((720.0, 720.0), (520.0, 2490.0), (750.0, 2490.0), (740.0, 790.0))
#: A similar pipeline whose bottleneck changes: the lines cross at 2.62 KiB.
CROSSING = ((1000.0, 300.0), (200.0, 1000.0), (2034.4, 300.0))
#: Trains of a round: one of each of 16 sizes, and four near either end.
TRAINS = 24
#: How much faster the other end's clock runs.
DRIFT = 20e-6


class FakeExchange:
    """A pipeline of stages and a delay; answers return through idle stages."""

    def __init__(
        self,
        stages: tuple[tuple[float, float], ...] = GAM,
        delay_us: float = 500.0,
        jitter_us: float = 10.0,
        own_us: float = 20.0,
        seed: int = 3,
        trip_jitter_us: float = 0.0,
        late_us_per_KiB: float = 0.0,
        mood: float = 0.0,
        wakes_us_per_KiB: float = 0.0,
        tells_xdp: bool = True,
    ) -> None:
        self.late_us_per_KiB, self.mood = late_us_per_KiB, mood
        self.wakes_us_per_KiB, self.tells_xdp = wakes_us_per_KiB, tells_xdp
        self.trip_jitter_us = trip_jitter_us
        self.stages, self.delay_us, self.jitter_us, self.own_us = (
            stages,
            delay_us,
            jitter_us,
            own_us,
        )
        self.payload_max_bytes, self.credits, self.train_max = 3702, 64, 32
        self.random = random.Random(seed)
        self.now_us = self.busy_us = 0.0
        self.slower = 1.0
        self.trains: list[int] = []
        self.held_us: list[float] = []  # by train: the bottleneck's time

    def _jitter_us(self) -> float:
        late = self.random.expovariate(1 / self.jitter_us) if self.jitter_us else 0.0
        return late + (1000 if self.random.random() < 0.03 else 0)  # a preemption

    def round_trips(self, size_bytes: int, count: int) -> list[Trip]:
        return [self._round_trip(size_bytes) for _ in range(count)]

    def _round_trip(self, size_bytes: int) -> Trip:
        sent = self.now_us
        there = sum(g + G * size_bytes / 1024 for g, G in self.stages) + self.delay_us
        there += self._jitter_us() + abs(self.random.gauss(0, self.trip_jitter_us))
        if self.late_us_per_KiB:  # after a longer sleep each of four hops wakes later
            mean_us = self.late_us_per_KiB * size_bytes / 1024
            there += sum(self.random.expovariate(1 / mean_us) for _ in range(4))
        host = 0.0
        if self.wakes_us_per_KiB:  # every frame: the other end slept longer before a larger one
            host = 30 + self.wakes_us_per_KiB * size_bytes / 1024
            host += self.random.expovariate(1 / self.jitter_us)
        there += host
        back = sum(g for g, _ in self.stages) + self.delay_us + self._jitter_us()
        self.now_us += there + back
        self.busy_us += there + back
        # The other clock has an offset and runs faster.
        told = host if self.tells_xdp else 0.0
        return Trip(sent, there + 1e9 + DRIFT * sent, there + back, told)

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        if len(self.trains) % TRAINS == 3:  # all frames of a round meet the same machine
            self.slower = 1 + self.mood * self.random.gauss(0, 1)
        self.trains.append(count)
        self.held_us.append(count * max(g + G * size_bytes / 1024 for g, G in self.stages))
        free = [0.0] * len(self.stages)
        arrivals = []
        for number in range(count):
            at = number * self.own_us
            for k, (g, G) in enumerate(self.stages):
                at = free[k] = max(at, free[k]) + g + G * size_bytes / 1024
            arrivals.append(at * self.slower + self._jitter_us())
        self.now_us += max(arrivals)
        self.busy_us += max(arrivals)
        return sorted(arrivals), self.own_us

    def sleep(self, seconds: float) -> None:
        self.now_us += seconds * 1e6

    def measure(self, **options: object) -> Result:
        return BlackBox(
            self,
            Options(**options),  # type: ignore[arg-type]
            clock=lambda: self.now_us / 1e6,
            sleep=self.sleep,
        ).run()
