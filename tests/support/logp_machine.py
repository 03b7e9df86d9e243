"""A LogP machine in virtual time: known os, or, g and L, a capacity, noise and preemptions.

wakes: extra time of a request after a pause, µs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence

import numpy as np
from careful.measure.endpoints.logp import LogP, Options, Result
from careful.measure.statistics.sample import Bursts


class Machine:
    """Two processors and a network, µs; each step's time varies by `noise`, relative."""

    name = "machine"

    def __init__(
        self,
        os: float,
        or_: float,
        g: float,
        L: float,
        capacity: int = 62,
        noise: float = 0.1,
        preempted: float = 1e-4,
        seed: int = 1,
        wakes: float = 0.0,
    ) -> None:
        self.os, self.or_, self.g, self.L = os, or_, g, L
        self.capacity, self.noise, self.preempted = capacity, noise, preempted
        self.random, self.wakes = random.Random(seed), wakes
        self.now_us = 0.0
        self.at_most = 1000  # bursts per call

    def _takes(self, us: float) -> float:
        late = 500.0 if self.random.random() < self.preempted else 0.0
        return us * (1 + self.noise * self.random.uniform(-1, 1)) + late

    def clock(self) -> float:
        return self.now_us / 1e6

    def _burst(
        self, marks: Sequence[int], compute_us: float
    ) -> tuple[list[float], list[float], float, float]:
        at = computed = left = 0.0
        replies: deque[float] = deque()
        elapsed, computing = [], []
        for number in range(1, marks[-1] + 1):
            while len(replies) >= self.capacity:  # the network is full: stall
                at = max(at, replies.popleft()) + self._takes(self.or_)
            at += self._takes(self.os + (self.wakes if number == 1 or compute_us else 0.0))
            left = max(at, left + self._takes(self.g)) if number > 1 else at
            back = left + self.L + self._takes(self.or_) + self._takes(self.os) + self.L
            replies.append(max(back, replies[-1] if replies else 0.0))
            while replies and replies[0] <= at:
                replies.popleft()
                at += self._takes(self.or_)
            at += compute_us
            computed += compute_us
            if number in marks:
                elapsed.append(at)
                computing.append(computed)
        while replies:
            at = max(at, replies.popleft()) + self._takes(self.or_)
        return elapsed, computing, at, left + self.L + self.or_

    def bursts(self, marks: Sequence[int], compute_us: float, count: int) -> Bursts:
        found = [self._burst(marks, compute_us) for _ in range(min(count, self.at_most))]
        self.now_us += sum(done for _, _, done, _ in found)
        return Bursts(
            np.array(marks, dtype=np.float64),
            np.array([one[0] for one in found]),
            np.array([one[1] for one in found]),
            np.array([one[2] for one in found]),
            np.array([one[3] for one in found]),
        )


def measure(machine: Machine, **options: object) -> Result:
    """Runs LogP on the machine's clock."""
    return LogP(machine, Options(**options), clock=machine.clock).run()  # type: ignore[arg-type]
