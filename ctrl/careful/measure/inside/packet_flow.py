"""The packet-flow graph of one burst (P5 Figure 3), from trace records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from careful._abi import lib
from careful.errors import InputError
from careful.measure.inside import stages
from careful.measure.inside.stages import Records

#: An idle time that ends a burst, µs.
GAP_US = 500.0
TRANSFERS_MOST = 2000

#: A message: "bulk" or "small", and its number; each kind has its own numbers.
Key = tuple[str, int]


@dataclass(frozen=True)
class Transfer:
    """A time during which a stage was busy with some frames.

    `begin_us`, `end_us`: since the burst began; `messages`: numbers of the frames' messages, from
    1, in order of appearance; `bytes`: payload; `waited`: the thread waited for a device, and may
    have done other work; `runs`: for a kick, the hosts whose netRx ran inside it, as on veth.
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

    rows: the (stage, owner) pairs with transfers, in path order; cut_count: transfers left out at
    the end.
    """

    transfers: list[Transfer]
    rows: list[tuple[str, str]]
    messages_count: int
    cut_count: int

    @property
    def took_us(self) -> float:
        return max((transfer.end_us for transfer in self.transfers), default=0.0)

    @property
    def notes(self) -> list[str]:
        ran = {(transfer.owner, owner) for transfer in self.transfers for owner in transfer.runs}
        return [f"netTx of {a}: its kick also runs netRx of {b}" for a, b in sorted(ran)]

    def of(self, row: tuple[str, str]) -> list[Transfer]:
        return [transfer for transfer in self.transfers if (transfer.stage, transfer.owner) == row]


def _bursts(records: Records, gap_us: float) -> list[Records]:
    ordered = records[np.argsort(records["begin_ns"], kind="stable")]
    if not len(ordered):
        return []
    busy_until = np.maximum.accumulate(ordered["end_ns"].astype(np.int64))
    idle = ordered["begin_ns"][1:].astype(np.int64) - busy_until[:-1]
    return list(np.split(ordered, np.flatnonzero(idle > gap_us * 1e3) + 1))


def _direction(records: Records, sender: int | None, receiver: int | None) -> Records:
    """Returns one direction's records with payload: the sender's and the receiver's stages."""
    sent = np.isin(records["stage"], (stages.HOST_TX, stages.NET_TX))
    mine = sent & (records["owner"] == (-1 if sender is None else sender))
    mine |= ~sent & (records["owner"] == (-1 if receiver is None else receiver))
    one_way: Records = records[mine & (records["bytes"] > 0)]
    return one_way


def _directions(owners: int) -> list[tuple[int | None, int | None]]:
    """Returns the directions: sender and receiver, None for an end that is not traced."""
    if owners == 1:
        return [(0, None), (None, 0)]
    return [(a, b) for a in range(owners) for b in range(owners) if a != b]


def _payload_bytes(records: Records) -> int:
    by_stage = [int(records["bytes"][records["stage"] == stage].sum()) for stage in stages.NAMES]
    return max(by_stage, default=0)


def _with_arrivals(records: Records, owners: int) -> Records:
    """Returns the records. Those of netRx get the bytes, numbers and flags of their frames."""
    used = [records[records["stage"] != stages.NET_RX]]
    for owner in range(owners):
        arrived, copied = stages.arrivals(records, owner)
        arrived = arrived.copy()
        for name in ("bytes", "seq", "msg_id", "frag_off", "flags", "peer"):
            arrived[name] = copied[name]
        used.append(arrived)
    return np.concatenate(used)


def _keys(records: Records) -> dict[int, Key]:
    keys: dict[int, Key] = {}
    for record in records[np.isin(records["stage"], (stages.HOST_TX, stages.HOST_RX))]:
        seq, bulk = int(record["seq"]), int(record["msg_id"])
        for number in range(seq - int(record["frames"]) + 1, seq + 1) if seq else ():
            keys.setdefault(number, ("bulk", bulk) if bulk else ("small", number))
    return keys


def _messages(record: np.void, keys: dict[int, Key]) -> list[Key]:
    if int(record["msg_id"]):
        return [("bulk", int(record["msg_id"]))]
    seq = int(record["seq"])
    numbers = range(seq - int(record["frames"]) + 1, seq + 1) if seq else ()
    return list(dict.fromkeys(keys[number] for number in numbers if number in keys))


def _runs(record: np.void, arrived: Records, owners: Sequence[str]) -> tuple[str, ...]:
    """Returns the hosts whose netRx ran within a kick, on its thread."""
    if int(record["stage"]) != stages.NET_TX:
        return ()
    inside = (arrived["thread"] == record["thread"]) & (arrived["owner"] != record["owner"])
    inside &= (arrived["begin_ns"] >= record["begin_ns"]) & (arrived["end_ns"] <= record["end_ns"])
    return tuple(owners[int(owner)] for owner in np.unique(arrived["owner"][inside]))


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
            _direction(idle_separated, sender, receiver)
            for idle_separated in _bursts(known, gap_us)
            for sender, receiver in _directions(len(owners))
        ),
        key=_payload_bytes,
        default=known[:0],
    )
    if not len(best):
        raise InputError("no burst to draw: no frame with payload was traced")
    cut = max(len(best) - transfers_most, 0)
    keys = _keys(best)
    best = best[:transfers_most]
    start_ns = int(best["begin_ns"].astype(np.int64).min())
    numbers: dict[Key, int] = {}
    arrived = best[best["stage"] == stages.NET_RX]
    transfers = [
        Transfer(
            stages.NAMES[int(record["stage"])],
            owners[int(record["owner"])],
            (int(record["begin_ns"]) - int(record["before_ns"]) - start_ns) / 1e3,
            (int(record["end_ns"]) - start_ns) / 1e3,
            int(record["bytes"]),
            int(record["frames"]),
            tuple(numbers.setdefault(key, len(numbers) + 1) for key in _messages(record, keys)),
            bool(int(record["flags"]) & lib.CAREFUL_TRACE_WAITED),
            _runs(record, arrived, owners),
        )
        for record in best
    ]
    order = list(stages.NAMES.values())
    rows = sorted(
        {(record.stage, record.owner) for record in transfers}, key=lambda r: order.index(r[0])
    )
    return Burst(transfers, rows, len(numbers), cut)
