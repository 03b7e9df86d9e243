"""Reads the latencies of live messages, by the version of the settings that cut or wrote them.

Owns reading a whole entry of the live map. datapath/engine/live_latency.c measures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from careful._abi import CData, ffi
from careful.control.instance import maps
from careful.control.instance.maps import PinnedMap

TRIES = 100


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


def whole(live: PinnedMap, slot: int) -> bytes | None:
    """Returns a consistent copy of a slot's entry; None if the engine ended during a write.

    A lookup copies an entry in no defined order. So the entry's first word, which is odd during a
    write, is read before and after the lookup whose copy is returned.
    """
    for _ in range(TRIES):
        before, entry, after = (live.lookup(slot) for _ in range(3))
        if before[:8] == after[:8] and int.from_bytes(before[:8], sys.byteorder) % 2 == 0:
            return entry
    return None


def _by_version(cells: CData) -> Iterator[tuple[tuple[int, int], CData]]:
    """Yields class, version and C struct of each cell whose count is not 0."""
    for index, versions in enumerate(cells):
        for version, cell in enumerate(versions):
            if cell.count:
                yield (index, version), cell


def _squares(cell: CData) -> int:
    return int(cell.sum_square_high << 64 | cell.sum_square_low)


def cells_in(entry: bytes | None) -> dict[tuple[int, int], Cell]:
    """Returns the cells of sent messages in a whole entry, by class and version."""
    if entry is None:
        return {}
    raw = ffi.from_buffer("struct careful_live_entry *", entry)
    return {
        key: Cell(cell.count, cell.asked, cell.sum_ns, _squares(cell))
        for key, cell in _by_version(raw.cells)
    }


def stored_in(entry: bytes | None) -> tuple[dict[tuple[int, int], Stored], dict[int, Write]]:
    """Returns the peer's messages to files here, by class and version, and the writes, by class.

    Class and version of a message are those of its settings here; the class of a write is that of
    the write's size. Cells whose count is 0 are left out.
    """
    if entry is None:
        return {}, {}
    raw = ffi.from_buffer("struct careful_live_entry *", entry)
    stored = {
        key: Stored(
            count=cell.count,
            frames=cell.frames,
            writes=cell.writes,
            nbytes=cell.bytes,
            sum_came_ns=cell.sum_came_ns,
            sum_ns=cell.sum_ns,
            sum_sq_ns2=_squares(cell),
        )
        for key, cell in _by_version(raw.stored)
    }
    writes = {
        index: Write(cell.count, cell.bytes, cell.sum_ns, _squares(cell))
        for index, cell in enumerate(raw.writes)
        if cell.count
    }
    return stored, writes


def messages(name: str, with_stored: bool) -> dict[int, tuple[int, int]]:
    """Returns the number of an instance's live messages by slot, and their total time, ns.

    Counts the messages that were sent, and with `with_stored` those that were received and written
    to files. Leaves out slots that the engine was writing when it ended. Totals start at 0 with the
    instance, and continue under the slot's next peer. Raises CarefulError if there is no such
    instance, or if not permitted.
    """
    totals = {}
    with maps.live_map(name) as live:
        for slot in range(live.entries):
            if (entry := whole(live, slot)) is not None:
                cells: list[Cell | Stored] = [*cells_in(entry).values()]
                cells += stored_in(entry)[0].values() if with_stored else ()
                totals[slot] = sum(cell.count for cell in cells), sum(cell.sum_ns for cell in cells)
    return totals
