"""Estimates a store's costs from live writes, and the gain of another threshold.

A store is the file system to which a peer's messages are written. Owns the estimate of its g and G,
the test whether it is another store, and a message's latency under a threshold (P3 section 3; P1
section 4.3). Only the receiver sees the store, so the figures describe messages from a peer to
files here. Uncertain figures are drawn many times, as in propose.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from careful.jsonout import Json
from careful.model.eager import written_us
from careful.model.stages import Array
from careful.plan import CLASS_COUNT
from careful.tuning.settings import Pulse
from careful.tuning.verify import Counts

#: A store is another store if write times differ by this share, and by this many standard errors.
SHIFT_MIN = 0.15
SHIFT_SIGMAS = 4.0
#: Least number of writes that give the time of a size; least number of messages of a class.
WRITES_MIN, MESSAGES_MIN = 3, 5
#: Least ratio of write sizes that separates g from G.
APART = 1.4
#: Least relative error of a mean: write time is not exactly linear in size.
FLOOR = 0.02
#: Number of stores that are drawn from the figures' uncertainty.
DRAWS = 60
#: Most frames that wait for a write (datapath/storage/storage.h).
FRAMES_HELD = 64
#: Thresholds whose latencies are within this share of the best count as equal: the largest wins.
ALIKE = 0.01
#: Factors of the mean arrival time. A threshold can look best because a write ends just when the
#: last frame arrives; it is worst if that frame is a little later.
PACES = (1.0, 0.95, 1.05)


@dataclass(frozen=True)
class Arrivals:
    """Totals of messages of a class that arrived and were written."""

    count: int = 0
    frames: int = 0
    nbytes: int = 0
    came_ns: int = 0

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(*(a + b for a, b in zip(_sums(self), _sums(other), strict=True)))

    def since(self, before: Arrivals) -> Arrivals:
        """Returns the messages after `before`; all if the counters restarted."""
        if self.count < before.count:
            return self
        return Arrivals(*(a - b for a, b in zip(_sums(self), _sums(before), strict=True)))


def _sums(arrivals: Arrivals) -> tuple[int, int, int, int]:
    return arrivals.count, arrivals.frames, arrivals.nbytes, arrivals.came_ns


@dataclass(frozen=True)
class Totals:
    """The engine's counts of messages, by class, and of writes, by the class of their size.

    writes: for each class of sizes, the bytes and the latencies.
    """

    came: Mapping[int, Arrivals] = field(default_factory=dict)
    writes: Mapping[int, tuple[int, Counts]] = field(default_factory=dict)

    def since(self, before: Totals) -> Totals:
        return Totals(
            {k: one.since(before.came.get(k, Arrivals())) for k, one in self.came.items()},
            {
                k: _writes_since(one, before.writes.get(k, (0, Counts())))
                for k, one in self.writes.items()
            },
        )

    @property
    def writes_count(self) -> int:
        return sum(counts.count for _, counts in self.writes.values())


def _writes_since(now: tuple[int, Counts], before: tuple[int, Counts]) -> tuple[int, Counts]:
    counts = now[1].since(before[1])
    return (now[0], counts) if counts == now[1] else (now[0] - before[0], counts)


@dataclass(frozen=True)
class Store:
    """A store as live messages show it.

    g_us, G_us_per_byte: costs of a write; draws: costs drawn from the uncertainty; told_apart: g
    and G are known separately; came: arrivals by class; writes: number of writes in the estimate.
    """

    g_us: float
    G_us_per_byte: float
    draws: tuple[tuple[float, float], ...]
    told_apart: bool
    came: Mapping[int, Arrivals]
    writes: int

    def write_us(self, nbytes: float) -> tuple[float, float]:
        value = self.g_us + self.G_us_per_byte * nbytes
        return value, float(np.std([g + G * nbytes for g, G in self.draws]))

    def figures(self) -> Json:
        low, high = (np.percentile(np.array(self.draws), at, axis=0) for at in (2.5, 97.5))
        return {
            "g_us": round(self.g_us, 3),
            "g_low_us": round(float(low[0]), 3),
            "g_high_us": round(float(high[0]), 3),
            "G_us_per_KiB": round(self.G_us_per_byte * 1024, 4),
            "G_low_us_per_KiB": round(float(low[1]) * 1024, 4),
            "G_high_us_per_KiB": round(float(high[1]) * 1024, 4),
            "told_apart": self.told_apart,
            "writes_count": self.writes,
        }

    def as_dict(self) -> Json:
        came = {str(index): vars(one) for index, one in self.came.items()}
        return {**vars(self), "draws": [list(one) for one in self.draws], "came": came}

    def latency_us(
        self, index: int, pulse: Pulse, costs: tuple[float, float], pace: float = 1.0
    ) -> float:
        """Returns a message's latency from its first fragment.

        costs: g and G of a store; pace: factor of the mean arrival time.
        """
        arrivals = self.came[index]
        frames = max(1, round(arrivals.frames / arrivals.count))
        message_bytes, came_us = (
            arrivals.nbytes / arrivals.count,
            pace * arrivals.came_ns / arrivals.count / 1e3,
        )
        held = min(pulse.store_bytes, FRAMES_HELD * message_bytes / frames)
        return written_us(message_bytes, frames, came_us, held, *costs)

    def candidates(self, index: int) -> list[Pulse]:
        """Returns the thresholds to compare for a class: one for each number of frames.

        A threshold is half a frame below its number, so that a short last frame or a rounded size
        adds no frame.
        """
        arrivals = self.came[index]
        frames, size = (
            max(1, round(arrivals.frames / arrivals.count)),
            arrivals.nbytes / max(1, arrivals.frames),
        )
        most = min(frames, FRAMES_HELD)
        counts = {min(most, round(2 ** (k / 4))) for k in range(4 * most.bit_length() + 1)}
        return [Pulse(math.ceil((count - 0.5) * size)) for count in sorted(counts)]

    def best(self, index: int) -> Pulse:
        """Returns the fastest threshold; among equals the largest, which makes fewest writes."""
        costs = (self.g_us, self.G_us_per_byte)
        ranked = [
            (sum(self.latency_us(index, pulse, costs, pace) for pace in PACES), pulse)
            for pulse in self.candidates(index)
        ]
        least = min(us for us, _ in ranked)
        return next(pulse for us, pulse in reversed(ranked) if us <= least * (1 + ALIKE))


def store_from_dict(data: Json) -> Store | None:
    """Reads a store from as_dict(); None for anything else."""
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        came = {int(index): Arrivals(**one) for index, one in data["came"].items()}
        draws = tuple((float(g), float(G)) for g, G in data["draws"])
        costs = (float(data["g_us"]), float(data["G_us_per_byte"]))
        whole = all(math.isfinite(each) and each >= 0 for one in (costs, *draws) for each in one)
        whole = whole and all(0 <= index < CLASS_COUNT for index in came)
        whole = whole and all(one.count > 0 and one.frames > 0 for one in came.values())
        if whole and draws and came:
            return Store(*costs, draws, bool(data["told_apart"]), came, int(data["writes"]))
    return None


def fit(totals: Totals) -> Store | None:
    """Estimates the store from some writes; None: there were too few."""
    points = [
        (nbytes / one.count, one.mean_us, _error(one))
        for nbytes, one in totals.writes.values()
        if one.count >= WRITES_MIN
    ]
    came = {index: one for index, one in totals.came.items() if one.count >= MESSAGES_MIN}
    if not points or not came:
        return None
    sizes, means, errors = (np.array(column) for column in zip(*points, strict=True))
    random = np.random.default_rng(1)
    if sizes.max() < APART * sizes.min():
        size, mean = float(sizes.mean()), float(means.mean())
        # The sizes are too similar: any share of a write's time may be its overhead.
        shares = random.uniform(0, 1, DRAWS)
        draws = tuple((mean * share, mean * (1 - share) / size) for share in shares)
        return Store(mean / 2, mean / 2 / size, draws, False, came, totals.writes_count)
    drawn = [_line(sizes, means, errors)]
    drawn += [
        _line(sizes, means + random.standard_normal(len(means)) * errors, errors)
        for _ in range(DRAWS)
    ]
    return Store(*drawn[0], tuple(drawn[1:]), True, came, totals.writes_count)


def _error(counts: Counts) -> float:
    return max(math.sqrt(counts.variance_us2 / counts.count), FLOOR * counts.mean_us)


def _line(sizes: Array, means: Array, errors: Array) -> tuple[float, float]:
    """Fits a line: g and G, neither below 0."""
    weights = 1 / errors**2
    size, mean = np.average(sizes, weights=weights), np.average(means, weights=weights)
    spread = np.average((sizes - size) ** 2, weights=weights)
    G = float(np.average((sizes - size) * (means - mean), weights=weights) / spread)
    if G < 0:
        return float(mean), 0.0
    g = float(mean - G * size)
    if g < 0:
        return 0.0, float(np.sum(weights * sizes * means) / np.sum(weights * sizes**2))
    return g, G


def is_another_store(known: Store, totals: Totals) -> bool:
    """Reports whether the time of writes differs from the known store's."""
    for nbytes, counts in totals.writes.values():
        if counts.count >= WRITES_MIN:
            expected, error = known.write_us(nbytes / counts.count)
            apart = abs(counts.mean_us - expected)
            if apart > max(SHIFT_MIN * expected, SHIFT_SIGMAS * math.hypot(error, _error(counts))):
                return True
    return False


def counted(
    stored: Iterable[tuple[int, Arrivals]], writes: Mapping[int, tuple[int, Counts]]
) -> Totals:
    """Adds up the messages of each class, which can have several entries."""
    came: dict[int, Arrivals] = {}
    for index, arrivals in stored:
        came[index] = came.get(index, Arrivals()) + arrivals
    return Totals(came, writes)
