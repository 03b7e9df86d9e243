"""A pipeline in virtual time: fragments, pulses, bursts, shared resources, delays.

Tests compare the closed forms of `latency.py` with this direct simulation. Only the simulation
covers resources shared by any stages, and sinks that take whatever has arrived (P3 section 4.2,
P5). The simulation does not use P1's theorems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from careful.errors import InputError
from careful.model.stages import KIB, Pipeline, Stage

#: Simulations of more transfers are refused: they would run for minutes.
TRANSFERS_MAX = 2_000_000
#: Tolerance in bytes: rates are real numbers, sizes are whole.
SLACK_BYTES = 1e-6


@dataclass(frozen=True)
class Sizes:
    """A stage that passes the fragments of a plan: these sizes for every message, bytes."""

    sizes_bytes: tuple[float, ...]


@dataclass(frozen=True)
class FixedPulse:
    """A sink that moves exactly `pulse_bytes` at a time, and the message's tail (P3 4.1)."""

    pulse_bytes: int


@dataclass(frozen=True)
class EagerPulse:
    """A sink that takes all buffered bytes of a message (P3 section 4.2; P5, Figure 2).

    It does so when it is idle, and at least `minpulse_bytes` or the tail are buffered.
    """

    minpulse_bytes: int


@dataclass(frozen=True)
class WholeMessage:
    """A sink that stores and forwards: it moves a message in one transfer."""


Rule = Sizes | FixedPulse | EagerPulse | WholeMessage


@dataclass(frozen=True)
class Transfer:
    """One use of a stage: bytes [offset, offset + size) of a message, in µs from the start.

    stage: index; message: index; offset_bytes, size_bytes; start_us, end_us: occupation.
    """

    stage: int
    message: int
    offset_bytes: float
    size_bytes: float
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Message:
    """A message of `message_bytes` that is ready at the first stage at `ready_us`."""

    message_bytes: float
    ready_us: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Transfers in order of their start, and when each message was ready and complete, µs."""

    transfers: tuple[Transfer, ...]
    ready_us: tuple[float, ...]
    complete_us: tuple[float, ...]

    @property
    def latency_us(self) -> tuple[float, ...]:
        """Latency of each message, from ready to complete, µs."""
        return tuple(c - r for c, r in zip(self.complete_us, self.ready_us, strict=True))

    def of_stage(self, stage: int) -> list[Transfer]:
        return [transfer for transfer in self.transfers if transfer.stage == stage]


@dataclass
class _Sink:
    """One stage at work: arrivals, and the next transfer.

    upstream: the stage before; for the first stage, itself. arrivals: (message, low_bytes,
    high_bytes, begin_us, end_us) in order: these bytes arrive evenly from begin_us to end_us.
    cursor: index of the first arrival in use.
    """

    index: int
    stage: Stage
    upstream: Stage
    rule: Rule
    messages: Sequence[Message]
    progressive: bool
    arrivals: list[tuple[int, float, float, float, float]] = field(default_factory=list)
    cursor: int = 0
    message_index: int = 0
    taken_bytes: float = 0.0
    fragment_index: int = 0

    def done(self) -> bool:
        return self.message_index == len(self.messages)

    def needed_bytes(self) -> float:
        """Returns the bytes that must be buffered before the next transfer may start."""
        left = self.messages[self.message_index].message_bytes - self.taken_bytes
        match self.rule:
            case Sizes(sizes):
                return min(sizes[self.fragment_index], left)
            case FixedPulse(pulse):
                return min(float(pulse), left)
            case EagerPulse(minpulse):
                return min(float(minpulse), left)
            case WholeMessage():
                return left

    def ready_us(self) -> float:
        """Returns the earliest known time, µs, at which enough has arrived; infinite if none."""
        if self.done():
            return math.inf
        goal = self.taken_bytes + self.needed_bytes() - SLACK_BYTES
        while self.cursor < len(self.arrivals):
            message, low, high, begin, end = self.arrivals[self.cursor]
            if message == self.message_index and high >= goal:
                share = max(goal - low, 0.0) / (high - low) if end > begin else 1.0
                return begin + (end - begin) * min(share, 1.0)
            self.cursor += 1
        return math.inf

    def take(self, now_us: float) -> Transfer:
        """Starts a transfer at `now_us`; the rule decides its size."""
        size = self.needed_bytes()
        if isinstance(self.rule, EagerPulse):
            size = max(size, math.floor(self._arrived(now_us) + SLACK_BYTES) - self.taken_bytes)
        end_us = now_us + self.stage.time_us(size)
        transfer = Transfer(self.index, self.message_index, self.taken_bytes, size, now_us, end_us)
        self.taken_bytes += size
        self.fragment_index += 1
        if self.taken_bytes >= self.messages[self.message_index].message_bytes - SLACK_BYTES:
            self.message_index += 1
            self.taken_bytes = 0.0
            self.fragment_index = 0
        return transfer

    def _arrived(self, now_us: float) -> float:
        """Returns the bytes of the current message that have arrived by `now_us`."""
        arrived = self.taken_bytes
        for message, low, high, begin, end in self.arrivals[self.cursor :]:
            if message != self.message_index or begin > now_us:
                break
            share = 1.0 if end <= now_us else (now_us - begin) / (end - begin)
            arrived = max(arrived, low + (high - low) * share)
        return arrived

    def deliver(self, transfer: Transfer) -> None:
        before, size = self.upstream, transfer.size_bytes
        flow_us = size * before.G_us_per_KiB / KIB if self.progressive else 0.0
        low, end = transfer.offset_bytes, transfer.end_us + before.delay_us
        self.arrivals.append((transfer.message, low, low + size, end - flow_us, end))


def simulate(
    pipeline: Pipeline,
    messages: Sequence[Message],
    rules: Sequence[Rule],
    progressive: bool = False,
) -> Outcome:
    """Sends messages through a pipeline in virtual time.

    messages: in the order they are sent; ready_us not decreasing.
    rules: one per stage, how it cuts. A stage waits until its next transfer has arrived.
    progressive: bytes reach the next stage while a transfer runs, after its overhead g, like P3's
    DMA engines. Otherwise all bytes arrive at the end, like P1's store-and-forward stages.
    If stages share a resource, the stage that could start first runs. If several could start at the
    same time, the last one in the pipeline runs; neighbours then act like P1's merged stage
    (`Pipeline.sequential`). Nothing is preempted, buffers are unbounded.
    Raises ValueError for messages below one byte or with a bad ready_us, plans that do not add up,
    pulses below one byte, or more than TRANSFERS_MAX transfers.
    """
    _check(pipeline, messages, rules)
    stages = pipeline.stages
    sinks = [
        _Sink(j, stage, stages[max(0, j - 1)], rule, messages, progressive)
        for j, (stage, rule) in enumerate(zip(stages, rules, strict=True))
    ]
    for number, message in enumerate(messages):
        at = message.ready_us
        sinks[0].arrivals.append((number, 0.0, message.message_bytes, at, at))
    resources = [stage.resource or f"\0{j}" for j, stage in enumerate(pipeline.stages)]
    free_us = dict.fromkeys(resources, 0.0)
    ready_us = [sink.ready_us() for sink in sinks]
    complete_us = [0.0] * len(messages)
    transfers: list[Transfer] = []
    while True:
        # The least start is final: transfers that start later can only deliver later.
        start_us = math.inf
        chosen = -1
        for j in range(len(sinks)):
            could = max(ready_us[j], free_us[resources[j]])
            if could < start_us or (could == start_us < math.inf):
                start_us, chosen = could, j
        if chosen < 0:
            break
        transfer = sinks[chosen].take(start_us)
        transfers.append(transfer)
        check_transfers(len(transfers))
        free_us[resources[chosen]] = transfer.end_us
        ready_us[chosen] = sinks[chosen].ready_us()
        if chosen + 1 < len(sinks):
            sinks[chosen + 1].deliver(transfer)
            ready_us[chosen + 1] = sinks[chosen + 1].ready_us()
        else:
            complete_us[transfer.message] = transfer.end_us + pipeline.stages[-1].delay_us
    return Outcome(
        tuple(transfers), tuple(message.ready_us for message in messages), tuple(complete_us)
    )


def _check(pipeline: Pipeline, messages: Sequence[Message], rules: Sequence[Rule]) -> None:
    if not messages:
        raise InputError("nothing to simulate: no messages")
    if len(rules) != len(pipeline):
        raise InputError(f"{len(rules)} rules for {len(pipeline)} stages: each stage needs one")
    for number, message in enumerate(messages):
        if not 1 <= message.message_bytes < math.inf:
            size = message.message_bytes
            raise InputError(f"message {number} of {size} bytes: must have at least 1 byte")
        if not 0 <= message.ready_us < math.inf:
            raise InputError(
                f"message {number} is ready at {message.ready_us} µs: "
                "must be finite and not negative"
            )
        if number and message.ready_us < messages[number - 1].ready_us:
            raise InputError(f"message {number} is ready before message {number - 1}")
    for stage, rule in zip(pipeline.stages, rules, strict=True):
        match rule:
            case Sizes(sizes):
                for message in messages:
                    if not math.isclose(math.fsum(sizes), message.message_bytes, rel_tol=1e-9):
                        raise InputError(
                            f"stage '{stage.name}': fragments of {math.fsum(sizes):g} bytes "
                            f"for a message of {message.message_bytes:g}"
                        )
                if min(sizes) <= 0:
                    raise InputError(f"stage '{stage.name}': a fragment has no bytes")
            case FixedPulse(size) | EagerPulse(size):
                if not size >= 1:
                    raise InputError(
                        f"stage '{stage.name}': a pulse of {size} bytes: must have at least 1"
                    )
            case WholeMessage():
                pass
    check_transfers(sum(_transfers_at_least(rule, messages) for rule in rules))


def check_transfers(count: int) -> None:
    """Raises ValueError if a simulation of `count` transfers is too long."""
    if count > TRANSFERS_MAX:
        raise InputError(f"the simulation needs more than {TRANSFERS_MAX} transfers")


def _transfers_at_least(rule: Rule, messages: Sequence[Message]) -> int:
    """Counts a stage's transfers; a lower bound for eager pulses, whose number depends on time."""
    match rule:
        case Sizes(sizes):
            return len(sizes) * len(messages)
        case FixedPulse(pulse):
            return sum(math.ceil(message.message_bytes / pulse) for message in messages)
        case _:
            return len(messages)


def simulate_sizes(pipeline: Pipeline, sizes_bytes: Sequence[float]) -> Outcome:
    """Simulates one message whose fragments pass all stages unchanged, as in P1 section 2."""
    sizes = tuple(float(size) for size in sizes_bytes)
    return simulate(pipeline, [Message(math.fsum(sizes))], [Sizes(sizes)] * len(pipeline))
