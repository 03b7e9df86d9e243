"""A pipeline in virtual time that live messages share with a measurement, and its record of
arrivals."""

from __future__ import annotations

import random

from careful.measure.probes.exchange import Arrival
from careful.measure.statistics.oneway import Trip
from fake_exchange import GAM

#: Bytes before the payload in a request's frame, and in a message's first fragment.
HEAD_BYTES = 48
#: Payload of a live message's fragments, and most fragments.
FRAGMENT_BYTES, FRAGMENTS_MAX = 3641, 16
#: How far the other end's clock is ahead, µs.
OFFSET_US = 1e9


class LoadedExchange:
    """A pipeline with live messages (undisturbed.Recorder).

    Args:
        stages: (g, G) of each, µs and µs per KiB.
        busy: the bottleneck's share of time for live messages; 1: a reader asks for the next
            message when the last one has come.
        jitter_us: mean error of a stamp.
        busy_back: the same share on the way back; answers wait behind these messages.
        wakes_us_per_KiB: time between XDP and handler, as it grows with a single frame's size.
    """

    def __init__(
        self,
        stages: tuple[tuple[float, float], ...] = GAM,
        busy: float = 0.5,
        jitter_us: float = 5.0,
        own_us: float = 20.0,
        seed: int = 1,
        busy_back: float = 0.0,
        wakes_us_per_KiB: float = 0.0,
    ) -> None:
        self.wakes_us_per_KiB = wakes_us_per_KiB
        self.stages, self.busy, self.jitter_us, self.own_us = stages, busy, jitter_us, own_us
        self.payload_max_bytes, self.credits, self.train_max = 3702, 256, 128
        self.random = random.Random(seed)
        self.now_us, self.records = 0.0, False
        self._free_us = [0.0] * len(stages)
        self._live_at_us = 0.0
        self.busy_back, self._back_at_us, self._back_free_us = busy_back, 0.0, 0.0
        self._seen: list[Arrival] = []
        self._advance()

    def _cost_us(self, nbytes: int) -> float:
        return max(g + G * nbytes / 1024 for g, G in self.stages)

    def _push(self, at_us: float, payload: int, nbytes: int) -> float:
        """Sends a frame; returns its arrival."""
        for k, (g, G) in enumerate(self.stages):
            at_us = self._free_us[k] = max(at_us, self._free_us[k]) + g + G * payload / 1024
        at_us += self.random.expovariate(1 / self.jitter_us)
        self._seen.append(Arrival(at_us + OFFSET_US, nbytes, False))
        return at_us

    def _one_live(self) -> None:
        count = self.random.randint(1, FRAGMENTS_MAX)
        end_us = self._live_at_us
        for k in range(count):
            head = HEAD_BYTES if not k else 0
            at_us = self._live_at_us + k * self.own_us
            end_us = self._push(at_us, FRAGMENT_BYTES, FRAGMENT_BYTES + head)
        if self.busy == 1:
            back_us = sum(g for g, _ in self.stages)
            self._live_at_us = end_us + back_us + self.random.uniform(0, 2000)
        else:
            mean_us = count * self._cost_us(FRAGMENT_BYTES) / self.busy
            self._live_at_us += self.random.expovariate(1 / mean_us)

    def _advance(self) -> None:
        while self.busy and self._live_at_us <= self.now_us:
            self._one_live()

    def _waits_us(self, at_us: float) -> float:
        """Returns how long an answer that leaves at a time waits for messages on the way back."""
        while self.busy_back and self._back_at_us <= at_us:
            took_us = self.random.randint(1, FRAGMENTS_MAX) * self._cost_us(FRAGMENT_BYTES)
            self._back_free_us = max(self._back_free_us, self._back_at_us) + took_us
            self._back_at_us += self.random.expovariate(self.busy_back / took_us)
        return max(0.0, self._back_free_us - at_us)

    def sleep(self, seconds: float) -> None:
        self.now_us += seconds * 1e6
        self._advance()

    def round_trips(self, size_bytes: int, count: int) -> list[Trip]:
        trips = []
        for _ in range(count):
            sent_us = self.now_us
            there_us = self._push(sent_us, size_bytes, size_bytes + HEAD_BYTES) - sent_us
            there_us += self.wakes_us_per_KiB * size_bytes / 1024
            back_us = sum(g for g, _ in self.stages) + self.random.expovariate(1 / self.jitter_us)
            back_us += self._waits_us(sent_us + there_us)
            self.now_us += there_us + back_us
            self._advance()
            trips.append(Trip(sent_us, there_us + OFFSET_US, there_us + back_us))
        return trips

    def train_us(self, size_bytes: int, count: int) -> tuple[list[float], float]:
        arrivals = []
        for _ in range(count):
            arrivals.append(self._push(self.now_us, size_bytes, size_bytes + HEAD_BYTES))
            self.now_us += self.own_us
            self._advance()
        self.now_us = max(self.now_us, arrivals[-1]) + sum(g for g, _ in self.stages)
        self.now_us += self._waits_us(self.now_us)
        self._advance()
        return [at - arrivals[0] for at in arrivals], self.own_us

    def record(self) -> None:
        self._seen.clear()

    def arrivals(self) -> list[Arrival]:
        """Returns what has arrived since the last call."""
        self.sleep(2 * sum(g for g, _ in self.stages) / 1e6)  # the question and its answer
        self.sleep(self._waits_us(self.now_us) / 1e6)
        seen = sorted(self._seen, key=lambda one: one.at_us)
        come = [one for one in seen if one.at_us - OFFSET_US <= self.now_us]
        self._seen = seen[len(come) :]
        return come
