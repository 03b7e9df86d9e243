"""What the messages of live traffic took, by the version of the settings that cut or wrote them.

Owns when an entry of the live map is whole, and what its words add up to. What is measured,
and what it holds beside the message, says datapath/service/live.c. Calls maps.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from careful._abi import ffi, lib, sizeof
from careful.control import maps
from careful.control.maps import Map

TRIES = 100

#: Slot, message-size class, version of the tune entry.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Cell:
    """Totals since the instance began (struct careful_live_cell): take differences.

    Attributes:
        count: messages that were measured.
        asked: of them, by a question behind their last fragment (the data of gets); the others
            by their own reply (stores).
        sum_ns: what they took.
        sum_sq_ns2: the sum of the squares of what each took.
    """

    count: int
    asked: int
    sum_ns: int
    sum_sq_ns2: int


@dataclass(frozen=True)
class Stored:
    """Messages that came and were written to files (struct careful_live_stored): totals.

    Attributes:
        count: messages that were measured.
        frames, writes: that they came in, and that they took.
        nbytes: of them.
        sum_came_ns: from their first fragment to their last.
        sum_ns: from their first fragment until all was written.
        sum_sq_ns2: the sum of the squares of what each took.
    """

    count: int
    frames: int
    writes: int
    nbytes: int
    sum_came_ns: int
    sum_ns: int
    sum_sq_ns2: int


@dataclass(frozen=True)
class Write:
    """Writes of those messages (struct careful_live_write): totals.

    Attributes:
        count: writes that were measured, at most four of a message.
        nbytes: of them.
        sum_ns: what they took.
        sum_sq_ns2: the sum of the squares of what each took.
    """

    count: int
    nbytes: int
    sum_ns: int
    sum_sq_ns2: int


def _whole(live: Map, slot: int) -> bytes | None:
    """A slot's entry as it stood at one time; None: its engine ended while it wrote.

    A lookup copies an entry in no order that could be relied on. So the sequence is looked
    at before and after the lookup whose copy is taken.
    """
    for _ in range(TRIES):
        before, entry, after = (live.lookup(slot) for _ in range(3))
        if before[:8] == after[:8] and int.from_bytes(before[:8], sys.byteorder) % 2 == 0:
            return entry
    return None


def cells_of(live: Map, slots: Iterable[int]) -> dict[Key, Cell]:
    """What was measured, of some slots of a live map; see cells()."""
    found = {}
    for slot in slots:
        entry = _entry(live, slot)
        if entry is None:
            continue
        for index, version in _CELLS:
            one = entry.cells[index][version]
            if one.count:
                cell = Cell(int(one.count), int(one.asked), int(one.sum_ns), _squares(one))
                found[slot, index, version] = cell
    return found


_CELLS = [
    (index, version)
    for index in range(lib.CAREFUL_CLASSES)
    for version in range(lib.CAREFUL_TUNE_VERSIONS)
]


def _entry(live: Map, slot: int) -> Any:
    raw = _whole(live, slot)
    if raw is None:
        return None
    entry = ffi.new("struct careful_live_entry *")
    ffi.memmove(entry, raw, sizeof("careful_live_entry"))
    return entry


def _squares(one: Any) -> int:
    return int(one.sum_square_high) << 64 | int(one.sum_square_low)


def stored_of(live: Map, slot: int) -> tuple[dict[tuple[int, int], Stored], dict[int, Write]]:
    """What a slot's peer sent to files here: messages by class and version, writes by class.

    A message's class and version are those of its settings here, a write's class is that of its
    own size. What there was none of is left out.
    """
    entry = _entry(live, slot)
    stored: dict[tuple[int, int], Stored] = {}
    writes: dict[int, Write] = {}
    if entry is None:
        return stored, writes
    for index, version in _CELLS:
        one = entry.stored[index][version]
        if one.count:
            stored[index, version] = Stored(
                count=int(one.count),
                frames=int(one.frames),
                writes=int(one.writes),
                nbytes=int(one.bytes),
                sum_came_ns=int(one.sum_came_ns),
                sum_ns=int(one.sum_ns),
                sum_sq_ns2=_squares(one),
            )
    for index in range(lib.CAREFUL_CLASSES):
        one = entry.writes[index]
        if one.count:
            writes[index] = Write(int(one.count), int(one.bytes), int(one.sum_ns), _squares(one))
    return stored, writes


def cells(name: str) -> dict[Key, Cell]:
    """What was measured so far of an instance's traffic, of each slot, class and version.

    A key whose count is 0 is left out, and so is a slot whose engine ended while it wrote.
    Totals of a slot go on under its next peer, and begin at 0 with the instance.

    Args:
        name: the instance's.

    Raises:
        CarefulError: no such instance, or not permitted.
    """
    with maps.live_map(name) as live:
        return cells_of(live, range(live.entries))


def read(name: str) -> dict[Key, tuple[int, int, int]]:
    """The same as (count, sum_ns, sum_sq_ns2), whatever the messages were measured by.

    Args:
        name: the instance's.

    Raises:
        CarefulError: no such instance, or not permitted.
    """
    return {key: (one.count, one.sum_ns, one.sum_sq_ns2) for key, one in cells(name).items()}
