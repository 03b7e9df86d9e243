"""The times of live messages, by the settings' version that cut or wrote them.

Owns reading a whole entry of the live map. datapath/engine/live_latency.c says what is measured.
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
        asked: those measured by a question behind their last fragment (the data of gets); the
            others were measured by their own reply (stores).
        sum_ns: their total time.
        sum_sq_ns2: the sum of the squares of their times.
    """

    count: int
    asked: int
    sum_ns: int
    sum_sq_ns2: int


@dataclass(frozen=True)
class Stored:
    """Totals of messages that arrived and were written to files (struct careful_live_stored).

    Attributes:
        count: messages that were measured.
        frames, writes: frames that they arrived in, and writes that they needed.
        nbytes: of them.
        sum_came_ns: from their first fragment to their last.
        sum_ns: from their first fragment until all was written.
        sum_sq_ns2: the sum of the squares of the times in sum_ns.
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
    """Totals of the writes of those messages (struct careful_live_write).

    Attributes:
        count: writes that were measured, at most four for each message.
        nbytes: of them.
        sum_ns: their total time.
        sum_sq_ns2: the sum of the squares of their times.
    """

    count: int
    nbytes: int
    sum_ns: int
    sum_sq_ns2: int


def whole(live: Map, slot: int) -> bytes | None:
    """Returns a slot's entry as of one time; None if its engine ended while it wrote.

    A lookup copies an entry in no defined order. So the sequence is read before and after the
    lookup whose copy is used.
    """
    for _ in range(TRIES):
        before, entry, after = (live.lookup(slot) for _ in range(3))
        if before[:8] == after[:8] and int.from_bytes(before[:8], sys.byteorder) % 2 == 0:
            return entry
    return None


def _words(struct: str) -> dict[str, int]:
    """Returns the index of each word in a cell, by name."""
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
    """Yields the index and the words, by name, of each cell with a count."""
    view = memoryview(entry).cast("Q")
    for index in range(count):
        at = _FIRST[what] + index * len(words)
        if view[at + words["count"]]:
            yield index, {name: view[at + offset] for name, offset in words.items()}


def _squares(one: Mapping[str, int]) -> int:
    return one["sum_square_high"] << 64 | one["sum_square_low"]


def cells_in(entry: bytes | None) -> dict[tuple[int, int], Cell]:
    """Returns the cells of sent messages in a whole entry, by class and version."""
    if entry is None:
        return {}
    return {
        divmod(index, _VERSIONS): Cell(one["count"], one["asked"], one["sum_ns"], _squares(one))
        for index, one in _counted(entry, "cells", _CELL, lib.CAREFUL_CLASSES * _VERSIONS)
    }


def stored_in(entry: bytes | None) -> tuple[dict[tuple[int, int], Stored], dict[int, Write]]:
    """Returns what the slot's peer sent to files here: messages by class and version, writes by
    class.

    Class and version of a message are those of its settings here; the class of a write is that of
    its own size. Cells without a count are left out.
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
    """Returns the cells of some slots of a live map, like cells()."""
    return {
        (slot, *key): cell for slot in slots for key, cell in cells_in(whole(live, slot)).items()
    }


def cells(name: str) -> dict[Key, Cell]:
    """Returns the totals of an instance's traffic, by slot, class and version.

    Cells without a count are left out, and so are slots whose engine ended while it wrote. A slot's
    totals continue under its next peer, and begin at 0 with the instance. Raises CarefulError if
    there is no such instance, or if not permitted.
    """
    with maps.live_map(name) as live:
        return cells_of(live, range(live.entries))
