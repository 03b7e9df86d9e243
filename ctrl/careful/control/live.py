"""What the messages of live traffic took, by the version of the settings that cut or wrote them.

Owns when an entry of the live map is whole, and what its words add up to. What is measured,
and what it holds beside the message, says datapath/engine/live.c. Calls maps.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

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


def whole(live: Map, slot: int) -> bytes | None:
    """A slot's entry as it stood at one time; None: its engine ended while it wrote.

    A lookup copies an entry in no order that could be relied on. So the sequence is looked
    at before and after the lookup whose copy is taken.
    """
    for _ in range(TRIES):
        before, entry, after = (live.lookup(slot) for _ in range(3))
        if before[:8] == after[:8] and int.from_bytes(before[:8], sys.byteorder) % 2 == 0:
            return entry
    return None


def _words(struct: str) -> dict[str, int]:
    """Returns the places of the words in a cell, by name."""
    fields = ffi.typeof(f"struct {struct}").fields
    assert 8 * len(fields) == sizeof(struct)
    return {name: field.offset // 8 for name, field in fields}


_VERSIONS = int(lib.CAREFUL_TUNE_VERSIONS)
_CELL, _STORED, _WRITE = map(
    _words, ("careful_live_cell", "careful_live_stored", "careful_live_write")
)
_FIRST = {
    name: ffi.offsetof("struct careful_live_entry", name) // 8
    for name in ("cells", "stored", "writes")
}


def _counted(
    entry: bytes, what: str, words: Mapping[str, int], count: int
) -> Iterator[tuple[int, dict[str, int]]]:
    """Returns the cells of an entry's array that counted anything: index and words, by name."""
    view = memoryview(entry).cast("Q")
    for index in range(count):
        at = _FIRST[what] + index * len(words)
        if view[at + words["count"]]:
            yield index, {name: view[at + offset] for name, offset in words.items()}


def _squares(one: Mapping[str, int]) -> int:
    return one["sum_square_high"] << 64 | one["sum_square_low"]


def cells_in(entry: bytes | None) -> dict[tuple[int, int], Cell]:
    """What a whole entry says of messages that were sent, by class and version."""
    if entry is None:
        return {}
    return {
        divmod(index, _VERSIONS): Cell(one["count"], one["asked"], one["sum_ns"], _squares(one))
        for index, one in _counted(entry, "cells", _CELL, lib.CAREFUL_CLASSES * _VERSIONS)
    }


def stored_in(
    entry: bytes | None,
) -> tuple[dict[tuple[int, int], Stored], dict[int, Write]]:
    """What it says of those that its slot's peer sent to files here: messages by class and
    version, writes by class.

    A message's class and version are those of its settings here, a write's class is that of its
    own size. What there was none of is left out.
    """
    if entry is None:
        return {}, {}
    stored = {
        divmod(index, _VERSIONS): Stored(
            count=one["count"],
            frames=one["frames"],
            writes=one["writes"],
            nbytes=one["bytes"],
            sum_came_ns=one["sum_came_ns"],
            sum_ns=one["sum_ns"],
            sum_sq_ns2=_squares(one),
        )
        for index, one in _counted(entry, "stored", _STORED, lib.CAREFUL_CLASSES * _VERSIONS)
    }
    writes = {
        index: Write(one["count"], one["bytes"], one["sum_ns"], _squares(one))
        for index, one in _counted(entry, "writes", _WRITE, lib.CAREFUL_CLASSES)
    }
    return stored, writes


def cells_of(live: Map, slots: Iterable[int]) -> dict[Key, Cell]:
    """What was measured, of some slots of a live map; see cells()."""
    return {
        (slot, *key): cell for slot in slots for key, cell in cells_in(whole(live, slot)).items()
    }


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
