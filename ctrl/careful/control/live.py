"""What the messages of live traffic took, by the version of the settings that cut them.

Owns when an entry of the live map is whole, and what its words add up to. What is measured,
and what it holds beside the message, says datapath/service/live.c. Calls maps.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
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
        raw = _whole(live, slot)
        if raw is None:
            continue
        entry = ffi.new("struct careful_live_entry *")
        ffi.memmove(entry, raw, sizeof("careful_live_entry"))
        for index in range(lib.CAREFUL_CLASSES):
            for version in range(lib.CAREFUL_TUNE_VERSIONS):
                one = entry.cells[index][version]
                if one.count:
                    squares = int(one.sum_square_high) << 64 | int(one.sum_square_low)
                    cell = Cell(int(one.count), int(one.asked), int(one.sum_ns), squares)
                    found[slot, index, version] = cell
    return found


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
