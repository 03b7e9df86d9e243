"""Times the stages between two hosts from inside (P1 section 5.3.1).

Owns the traffic: messages of one frame of several sizes, alone or in trains. Only one stage at a
time is traced, so that no probe delays another stage. Further trains run untraced; they give the
sender thread's total time for a frame.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from careful.errors import InputError
from careful.measure.inside import stages
from careful.measure.inside.stages import Bottleneck, Fit, Records
from careful.measure.statistics.estimate import Estimate

#: Stages that are traced together: netRx's records lack sizes, which hostRx's records have.
PASSES = ((stages.HOST_TX,), (stages.NET_TX,), (stages.HOST_RX,), (stages.NET_RX, stages.HOST_RX))
ROUNDS_MIN = 2
#: Least frames of a train: a single frame has no pace.
TRAIN_MIN = 2
#: Untraced trains of each size in a round, for the sender's pace.
PACE_TRAINS = 3

_ELSEWHERE = (
    "netRx and hostRx are on another machine: run `carefulctl trace stages` there at the same time"
)


class Exchange(Protocol):
    """The way to the other end: see blackbox.Exchange."""

    payload_max_bytes: int
    train_max: int

    def round_trips(self, size_bytes: int, count: int, /) -> object: ...

    def train_us(self, size_bytes: int, count: int, /) -> tuple[object, float]: ...


class Tracer(Protocol):
    """The source of trace records: see control/tracing/tracer.py."""

    @property
    def lost_count(self) -> int: ...

    def listen(self, wanted: Sequence[int], /) -> None: ...

    def collect(self, seconds: float, /) -> None: ...

    def take(self) -> Records: ...


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    `sizes_count`: payload sizes from min_bytes to max_bytes (0: a frame's payload); `trips`: most
    messages of each size in a round, for each stage; `trains`: send messages back to back, like the
    fragments of a message (warm caches make the processor faster); `precision`: sufficient half
    interval of all G, relative; `seconds`: time limit, unless the least work takes longer.
    """

    sizes_count: int = 12
    min_bytes: int = 64
    max_bytes: int = 0
    trips: int = 40
    trains: bool = False
    precision: float = 0.05
    rounds_max: int = 20
    seconds: float = 25.0
    seed: int = 1

    def __post_init__(self) -> None:
        if not stages.SIZES_MIN <= self.sizes_count <= 100:
            raise InputError(f"{self.sizes_count} sizes: must be {stages.SIZES_MIN} to 100")
        if self.min_bytes < 1 or self.max_bytes < 0:
            raise InputError("sizes must be above 0")
        if not (0 < self.precision < 1 and 0 < self.seconds < math.inf):
            raise InputError("precision must be between 0 and 1, and seconds positive")


@dataclass
class Result:
    """The stages that could be traced, in path order, and the bottleneck.

    sender: whole time of the sender's thread for a frame of a train, None without trains;
    bottleneck: None unless all stages have g and G; settled: the precision was reached; lost_count:
    records that found the buffer full.
    """

    stages: list[Fit]
    sender: Fit | None
    bottleneck: Bottleneck | None
    settled: bool
    rounds_count: int
    frames_count: int
    lost_count: int
    elapsed_s: float
    notes: list[str] = field(default_factory=list)


class ClearBox:
    """One measurement; `run` makes it.

    tracer: owner 0 is this end, owner 1 the other end if its instance runs here; owners: names of
    the owners.
    """

    def __init__(
        self,
        exchange: Exchange,
        tracer: Tracer,
        owners: Sequence[str],
        options: Options | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options or Options()
        self._exchange, self._tracer, self._owners, self._clock = exchange, tracer, owners, clock
        high = min(self.options.max_bytes or exchange.payload_max_bytes, exchange.payload_max_bytes)
        low, count = self.options.min_bytes, self.options.sizes_count
        if high - low < 2 * count:
            raise InputError(f"the range {low} to {high} bytes is too narrow for {count} sizes")
        self._sizes = [round(low + (high - low) * k / (count - 1)) for k in range(count)]
        self._random = random.Random(self.options.seed)
        self._records: dict[tuple[int, ...], list[Records]] = {
            traced: [] for traced in self._passes()
        }
        self._paces: list[tuple[int, float]] = []
        self._frames = 0
        self._until = self._trip_s = math.inf

    def _passes(self) -> list[tuple[int, ...]]:
        return list(PASSES if len(self._owners) > 1 else PASSES[:2])  # alone: sending stages only

    def run(self) -> Result:
        began = self._clock()
        self._until = began + self.options.seconds
        for number in range(1, self.options.rounds_max + 1):
            self._round(number)
            late = self._clock() > self._until
            if number < ROUNDS_MIN and not late:
                continue
            result = self._result(number, self._clock() - began)
            if result.settled or late:
                return result
        return self._result(number, self._clock() - began)

    def _round(self, number: int) -> None:
        """Makes all passes. Each has as many messages as its share of the remaining time allows."""
        passes = [*([()] if self.options.trains else []), *self._passes()]
        for k, listened in enumerate(passes):
            to_come = len(passes) * (1 + max(ROUNDS_MIN - number, 0)) - k
            self._pass(listened, (self._until - self._clock()) / to_come, whole=number == 1)

    def _pass(self, listened: tuple[int, ...], share_s: float, whole: bool) -> None:
        """Sends messages of all sizes; stops when the time is over, unless `whole`.

        listened: the traced stages; empty for the sender's pace; share_s: time for this pass.
        """
        self._tracer.listen(())
        self._wake()
        self._tracer.take()
        lost = self._tracer.lost_count
        self._tracer.listen(listened)
        trains = 1 if listened else PACE_TRAINS
        fitting = share_s / len(self._sizes) / trains / self._trip_s if self._trip_s else math.inf
        count = int(max(stages.SAMPLES_MIN, min(self.options.trips, fitting)))
        for size in self._random.sample(self._sizes, len(self._sizes)):
            if not whole and self._clock() > self._until:
                break
            if listened:
                self._send(size, count)
            else:
                self._send_untraced(size, count)
        self._tracer.collect(0.0)
        records = self._tracer.take()
        if listened and lost == self._tracer.lost_count:  # a lost record could mix up frames
            self._records[listened].append(records)

    def _wake(self) -> None:
        """Wakes the path, and notes the least time of a round trip."""
        began = self._clock()
        self._exchange.round_trips(self._sizes[-1], 1)
        self._trip_s = min(self._trip_s, self._clock() - began)

    def _send(self, size: int, count: int) -> None:
        if not self.options.trains:
            self._exchange.round_trips(size, count)
            self._frames += 2 * count
            return
        left = count
        while left > 0:
            count = max(TRAIN_MIN, min(left, self._exchange.train_max))
            self._exchange.train_us(size, count)
            self._frames += count + 1
            left -= count

    def _send_untraced(self, size: int, count: int) -> None:
        """Sends untraced trains: the pace includes all work of the thread."""
        count = max(TRAIN_MIN, min(count, self._exchange.train_max))
        for _ in range(PACE_TRAINS):
            self._paces.append((size, self._exchange.train_us(size, count)[1]))
            self._frames += count + 1

    def _samples(self, listened: tuple[int, ...], stage: int, owner: int) -> stages.Samples:
        """Returns the samples of all rounds; netRx and hostRx are matched within each round."""
        return stages.joined(
            [stages.samples(records, stage, owner, 1) for records in self._records[listened]]
        )

    def _result(self, rounds: int, elapsed_s: float) -> Result:
        fits = []
        for listened, stage, owner in zip(
            [*PASSES[:2], PASSES[3], PASSES[2]],
            (stages.HOST_TX, stages.NET_TX, stages.NET_RX, stages.HOST_RX),
            (0, 0, 1, 1),
            strict=True,
        ):
            if listened in self._records:
                samples = self._samples(listened, stage, owner)
                fits.append(stages.fit(stage, self._owners[owner], samples))
        fits = stages.shared(fits)
        sender = stages.whole(fits[0], self._paces) if self.options.trains else None
        limits = stages.bottleneck(fits, sender) if len(self._owners) > 1 else None
        # Only the sums must be precise: a small stage may be uncertain.
        wanted: list[Estimate] = (
            [limits.G_b_us_per_KiB, limits.sum_G_others_us_per_KiB] if limits else []
        )
        return Result(
            stages=fits,
            sender=sender,
            bottleneck=limits,
            settled=bool(wanted)
            and all(estimate.relative <= self.options.precision for estimate in wanted),
            rounds_count=rounds,
            frames_count=self._frames,
            lost_count=self._tracer.lost_count,
            elapsed_s=elapsed_s,
            notes=[] if len(self._owners) > 1 else [_ELSEWHERE],
        )
