"""Traces existing traffic for a time, stage by stage.

Owns the turns. Stages are traced one at a time, so that no probe delays another stage; all are
traced at once if the order between stages matters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from careful.errors import InputError
from careful.measure.inside import stages
from careful.measure.inside.clearbox import Tracer
from careful.measure.inside.stages import Fit, Records

#: Stages traced together; hostRx supplies the sizes for netRx.
TURNS = (
    (stages.HOST_TX, stages.STORE),
    (stages.NET_TX,),
    (stages.HOST_RX,),
    (stages.NET_RX, stages.HOST_RX),
)
ALL = (stages.HOST_TX, stages.NET_TX, stages.NET_RX, stages.HOST_RX, stages.STORE)
_TURN_S = 0.25
_SLICE_S = 0.05


@dataclass
class Heard:
    """The records of each turn, as a list of rounds.

    interrupted: Ctrl-C ended the tracing early; lost_count: records that found the buffer full.
    """

    records: dict[tuple[int, ...], list[Records]] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False
    lost_count: int = 0

    @property
    def records_count(self) -> int:
        return sum(len(records) for turn in self.records.values() for records in turn)


def listen(
    tracer: Tracer,
    seconds: float,
    turns: Sequence[tuple[int, ...]] = TURNS,
    ready: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> Heard:
    """Traces in turns for a time or until Ctrl-C; raises what the tracer raises.

    ready: called when the first turn has begun.
    """
    heard = Heard({turn: [] for turn in turns})
    tracer.listen(turns[0])
    ready()
    began = clock()
    turn_s = min(_TURN_S, seconds / len(turns)) if len(turns) > 1 else seconds
    try:
        while clock() - began < seconds:
            for turn in turns:
                left_s = max(began + seconds - clock(), 0.0) if len(turns) == 1 else turn_s
                _turn(tracer, turn, min(turn_s, left_s), heard, clock)
    except KeyboardInterrupt:
        heard.interrupted = True
    tracer.listen(())
    heard.seconds = clock() - began
    return heard


def _turn(
    tracer: Tracer, turn: tuple[int, ...], turn_s: float, heard: Heard, clock: Callable[[], float]
) -> None:
    lost, parts, missed = tracer.lost_count, list[Records](), 0
    tracer.listen(turn)
    until = clock() + turn_s
    try:
        while not missed and (left := until - clock()) > 0:
            tracer.collect(min(left, _SLICE_S))
            # netRx and hostRx cannot be matched behind a missing record.
            missed = tracer.lost_count - lost if stages.NET_RX in turn else 0
            if not missed:
                parts.append(tracer.take())
    finally:
        rest = tracer.take()
        heard.lost_count += tracer.lost_count - lost
        if not missed:
            parts.append(rest)
        if parts:
            records = np.concatenate(parts)
            heard.records[turn].append(records[np.argsort(records["end_ns"], kind="stable")])


def fits(heard: Heard, owners: Sequence[str]) -> list[Fit]:
    """Returns the stages of all owners with traffic, in order along the way."""
    result = []
    for stage in ALL:
        turn = next(each for each in reversed(TURNS) if stage in each and _times(each, stage))
        for owner, name in enumerate(owners):
            samples = [stages.samples(each, stage, owner) for each in heard.records[turn]]
            joined = stages.joined(samples)
            if len(joined):
                result.append(stages.fit(stage, name, joined))
    return stages.shared(result)


def _times(turn: tuple[int, ...], stage: int) -> bool:
    """Reports whether a turn times the stage: netRx's turn records hostRx only for its sizes."""
    return stage != stages.HOST_RX or turn == (stages.HOST_RX,)


def together(heard: Heard) -> Records:
    """Returns the longest run of records in which none is missing; ValueError if there is none."""
    every = [records for turn in heard.records.values() for records in turn]
    if not every:
        raise InputError(f"no burst to draw: {heard.lost_count} records found the buffer full")
    return max(every, key=len)
