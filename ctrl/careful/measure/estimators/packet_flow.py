"""The packet-flow graph of one burst (P5 Figure 3), from trace records.

Owns which records form a burst, its direction, and the message of each transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from careful._abi import lib
from careful.errors import InputError
from careful.measure.estimators import stages
from careful.measure.estimators.stages import Records

#: An idle time that ends a burst, µs.
GAP_US = 500.0
TRANSFERS_MOST = 2000

#: A message: its number at the sender; bulk and small messages are numbered separately.
Key = tuple[str, int]


@dataclass(frozen=True)
class Transfer:
    """A time during which a stage was busy with some frames.

    `begin_us`, `end_us`: since the burst began; `messages`: numbers of the frames' messages, from
    1, in order of appearance; `bytes`: payload; `waited`: a device had the frames, so the thread
    may have done other work; `runs`: for a kick, the hosts whose netRx ran inside it, as on veth
    (the departure of each frame is then unknown).
    """

    stage: str
    owner: str
    begin_us: float
    end_us: float
    bytes: int
    frames: int
    messages: tuple[int, ...]
    waited: bool = False
    runs: tuple[str, ...] = ()

    @property
    def took_us(self) -> float:
        return self.end_us - self.begin_us


@dataclass(frozen=True)
class Burst:
    """One burst in one direction.

    rows: the (stage, owner) pairs that took part, in order along the way; cut_count: transfers left
    out at the end.
    """

    transfers: list[Transfer]
    rows: list[tuple[str, str]]
    messages_count: int
    cut_count: int

    @property
    def took_us(self) -> float:
        return max((one.end_us for one in self.transfers), default=0.0)

    @property
    def notes(self) -> list[str]:
        ran = {(one.owner, owner) for one in self.transfers for owner in one.runs}
        return [f"netTx of {a}: its kick also runs netRx of {b}" for a, b in sorted(ran)]

    def of(self, row: tuple[str, str]) -> list[Transfer]:
        return [one for one in self.transfers if (one.stage, one.owner) == row]


def _bursts(records: Records, gap_us: float) -> list[Records]:
    ordered = records[np.argsort(records["begin_ns"], kind="stable")]
    if not len(ordered):
        return []
    busy_until = np.maximum.accumulate(ordered["end_ns"].astype(np.int64))
    idle = ordered["begin_ns"][1:].astype(np.int64) - busy_until[:-1]
    return list(np.split(ordered, np.flatnonzero(idle > gap_us * 1e3) + 1))


def _way(records: Records, sender: int | None, receiver: int | None) -> Records:
    """Returns the records with payload in one direction: to the wire here, from the wire there."""
    sent = np.isin(records["stage"], (stages.HOST_TX, stages.NET_TX))
    mine = sent & (records["owner"] == (-1 if sender is None else sender))
    mine |= ~sent & (records["owner"] == (-1 if receiver is None else receiver))
    found: Records = records[mine & (records["bytes"] > 0)]
    return found


def _ways(owners: int) -> list[tuple[int | None, int | None]]:
    """Returns the directions: sender and receiver, None for an end that is not traced."""
    if owners == 1:
        return [(0, None), (None, 0)]
    return [(a, b) for a in range(owners) for b in range(owners) if a != b]


def _weight(records: Records) -> int:
    by_stage = [int(records["bytes"][records["stage"] == stage].sum()) for stage in stages.NAMES]
    return max(by_stage, default=0)


def _with_arrivals(records: Records, owners: int) -> Records:
    """Returns the records; netRx records get bytes, numbers and flags of their frames."""
    used = [records[records["stage"] != stages.NET_RX]]
    for owner in range(owners):
        came, taken = stages.arrivals(records, owner)
        came = came.copy()
        for name in ("bytes", "seq", "msg_id", "frag_off", "flags", "peer"):
            came[name] = taken[name]
        used.append(came)
    return np.concatenate(used)


def _keys(records: Records) -> dict[int, Key]:
    found: dict[int, Key] = {}
    for one in records[np.isin(records["stage"], (stages.HOST_TX, stages.HOST_RX))]:
        seq, bulk = int(one["seq"]), int(one["msg_id"])
        for number in range(seq - int(one["frames"]) + 1, seq + 1) if seq else ():
            found.setdefault(number, ("bulk", bulk) if bulk else ("small", number))
    return found


def _messages(one: np.void, keys: dict[int, Key]) -> list[Key]:
    if int(one["msg_id"]):
        return [("bulk", int(one["msg_id"]))]
    seq = int(one["seq"])
    numbers = range(seq - int(one["frames"]) + 1, seq + 1) if seq else ()
    return list(dict.fromkeys(keys[number] for number in numbers if number in keys))


def _runs(one: np.void, came: Records, owners: Sequence[str]) -> tuple[str, ...]:
    """Returns the hosts whose netRx ran within a kick, on its thread."""
    if int(one["stage"]) != stages.NET_TX:
        return ()
    inside = (came["thread"] == one["thread"]) & (came["owner"] != one["owner"])
    inside &= (came["begin_ns"] >= one["begin_ns"]) & (came["end_ns"] <= one["end_ns"])
    return tuple(owners[int(owner)] for owner in np.unique(came["owner"][inside]))


def burst(
    records: Records,
    owners: Sequence[str],
    gap_us: float = GAP_US,
    transfers_most: int = TRANSFERS_MOST,
) -> Burst:
    """Returns the burst with the most payload, in the direction that carried most of it.

    records: of dtype tracer.RECORD, of all stages at once. Raises ValueError if none has payload.
    """
    known = _with_arrivals(records, len(owners))
    known = known[known["flags"] & lib.CAREFUL_TRACE_CONTROL == 0]
    best = max(
        (
            _way(part, sender, receiver)
            for part in _bursts(known, gap_us)
            for sender, receiver in _ways(len(owners))
        ),
        key=_weight,
        default=known[:0],
    )
    if not len(best):
        raise InputError("no burst to draw: nothing with payload crossed meanwhile")
    cut = max(len(best) - transfers_most, 0)
    keys = _keys(best)
    best = best[:transfers_most]
    start_ns = int(best["begin_ns"].astype(np.int64).min())
    numbers: dict[Key, int] = {}
    came = best[best["stage"] == stages.NET_RX]
    transfers = [
        Transfer(
            stages.NAMES[int(one["stage"])],
            owners[int(one["owner"])],
            (int(one["begin_ns"]) - int(one["before_ns"]) - start_ns) / 1e3,
            (int(one["end_ns"]) - start_ns) / 1e3,
            int(one["bytes"]),
            int(one["frames"]),
            tuple(numbers.setdefault(key, len(numbers) + 1) for key in _messages(one, keys)),
            bool(int(one["flags"]) & lib.CAREFUL_TRACE_WAITED),
            _runs(one, came, owners),
        )
        for one in best
    ]
    order = list(stages.NAMES.values())
    rows = sorted({(one.stage, one.owner) for one in transfers}, key=lambda r: order.index(r[0]))
    return Burst(transfers, rows, len(numbers), cut)
