"""Reads the latencies of live messages, by the version of the settings that cut or wrote them.

Owns reading a whole entry of the live map. datapath/engine/live_latency.c measures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from careful._abi import ffi, lib, sizeof
from careful.control.instance import maps
from careful.control.instance.maps import Map

TRIES = 100

#: Slot, message-size class, version of the tune entry.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class Cell:
    """Totals since the instance began (struct careful_live_cell): take differences.

    Attributes:
        count: messages that were measured.
        asked: messages measured by a question behind their last fragment (the data of gets); all
            others were measured by their own reply (stores).
        sum_ns: total time.
        sum_sq_ns2: sum of the squares of the times.
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
        frames, writes: frames and writes of the messages.
        nbytes: bytes of the messages.
        sum_came_ns: time from first fragment to last.
        sum_ns: time from first fragment until all is written.
        sum_sq_ns2: sum of the squares of the times in sum_ns.
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
    """Totals of the writes of the messages in Stored (struct careful_live_write).

    count: writes that were measured, at most four for each message; nbytes: bytes of the writes;
    sum_ns: total time; sum_sq_ns2: sum of the squares of the times.
    """

    count: int
    nbytes: int
    sum_ns: int
    sum_sq_ns2: int


def whole(live: Map, slot: int) -> bytes | None:
    """Returns a consistent copy of a slot's entry; None if the engine ended during a write.

    A lookup copies an entry in no defined order. So the entry's first word, which is odd during a
    write, is read before and after the lookup whose copy is returned.
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
    entry: bytes, array: str, words: Mapping[str, int], count: int
) -> Iterator[tuple[int, dict[str, int]]]:
    """Yields the index and the words, by name, of each cell whose count is not 0."""
    view = memoryview(entry).cast("Q")
    for index in range(count):
        start = _FIRST[array] + index * len(words)
        if view[start + words["count"]]:
            yield index, {name: view[start + offset] for name, offset in words.items()}


def _squares(cell: Mapping[str, int]) -> int:
    return cell["sum_square_high"] << 64 | cell["sum_square_low"]


def cells_in(entry: bytes | None) -> dict[tuple[int, int], Cell]:
    """Returns the cells of sent messages in a whole entry, by class and version."""
    if entry is None:
        return {}
    return {
        divmod(index, _VERSIONS): Cell(cell["count"], cell["asked"], cell["sum_ns"], _squares(cell))
        for index, cell in _counted(entry, "cells", _CELL, lib.CAREFUL_CLASSES * _VERSIONS)
    }


def stored_in(entry: bytes | None) -> tuple[dict[tuple[int, int], Stored], dict[int, Write]]:
    """Returns the peer's messages to files here, by class and version, and the writes, by class.

    Class and version of a message are those of its settings here; the class of a write is that of
    the write's size. Cells whose count is 0 are left out.
    """
    if entry is None:
        return {}, {}
    stored = {
        divmod(index, _VERSIONS): Stored(
            count=cell["count"],
            frames=cell["frames"],
            writes=cell["writes"],
            nbytes=cell["bytes"],
            sum_came_ns=cell["sum_came_ns"],
            sum_ns=cell["sum_ns"],
            sum_sq_ns2=_squares(cell),
        )
        for index, cell in _counted(entry, "stored", _STORED, lib.CAREFUL_CLASSES * _VERSIONS)
    }
    writes = {
        index: Write(cell["count"], cell["bytes"], cell["sum_ns"], _squares(cell))
        for index, cell in _counted(entry, "writes", _WRITE, lib.CAREFUL_CLASSES)
    }
    return stored, writes


def cells_of(live: Map, slots: Iterable[int]) -> dict[Key, Cell]:
    """Returns the cells of some slots of a live map, like cells()."""
    return {
        (slot, *key): cell for slot in slots for key, cell in cells_in(whole(live, slot)).items()
    }


def cells(name: str) -> dict[Key, Cell]:
    """Returns the totals of an instance's traffic, by slot, class and version.

    Leaves out cells whose count is 0, and slots that the engine was writing when it ended. Totals
    start at 0 with the instance, and continue under the slot's next peer. Raises CarefulError if
    there is no such instance, or if not permitted.
    """
    with maps.live_map(name) as live:
        return cells_of(live, range(live.entries))
