"""The controller reads whole entries of the live map, whatever is written meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from careful._abi import ffi
from careful.control.instance import live_latency
from careful.errors import CarefulError


def entry(sequence: int, count: int, *, klass: int = 7, version: int = 1) -> bytes:
    """Returns an entry with one cell: `count` messages of 2^33 ns each."""
    made: Any = ffi.new("struct careful_live_entry *")
    made.sequence = sequence
    cell = made.cells[klass][version]
    cell.count, cell.asked, cell.sum_ns = count, count // 2, count << 33
    cell.sum_square_low = (count << 66) % (1 << 64)
    cell.sum_square_high = (count << 66) >> 64
    return bytes(ffi.buffer(made))


def cells(fake: FakeMap, slot: int = 0) -> dict[tuple[int, int], live_latency.Cell]:
    return live_latency.cells_in(live_latency.whole(fake, slot))


class FakeMap:
    """Slot -> its entry, or a function that returns one at each lookup."""

    def __init__(self, *slots: bytes | Callable[[], bytes]) -> None:
        self.slots = slots

    def lookup(self, key: int) -> bytes:
        one = self.slots[key]
        return one if isinstance(one, bytes) else one()

    def update(self, key: int, value: bytes) -> None:
        raise AssertionError(f"{key}: the engine alone writes, not {value!r}")


def one_after_the_other(*entries: bytes) -> Callable[[], bytes]:
    """Each lookup returns the next entry; the last one stays."""
    left = list(entries)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def test_cells__by_slot_class_and_version() -> None:
    fake = FakeMap(entry(2, 4), entry(0, 0), entry(8, 5, klass=15, version=2))
    assert [cells(fake, slot) for slot in range(3)] == [
        {(7, 1): live_latency.Cell(4, 2, 4 << 33, 4 << 66)},
        {},
        {(15, 2): live_latency.Cell(5, 2, 5 << 33, 5 << 66)},
    ]


def test_cells__an_entry_that_is_being_written_is_read_again() -> None:
    torn, whole = entry(3, 9), entry(4, 5)
    fake = FakeMap(one_after_the_other(torn, torn, torn, whole))
    assert cells(fake)[7, 1].count == 5


@pytest.mark.parametrize("at", range(4))
def test_cells__an_entry_that_changes_between_the_lookups_is_read_again(at: int) -> None:
    """The copy's own sequence number may be old or new, so it does not count."""
    mixed = entry(2, 9)
    seen = [entry(2, 4)] * at + [mixed] + [entry(4, 5)] * 3
    cell = cells(FakeMap(one_after_the_other(*seen)))[7, 1]
    assert cell.count == (5 if at < 2 else 4)


def test_cells__a_half_written_slot_is_left_out() -> None:
    fake = FakeMap(entry(3, 4), entry(2, 6))
    assert live_latency.whole(fake, 0) is None
    assert cells(fake, 1) == {(7, 1): live_latency.Cell(6, 3, 6 << 33, 6 << 66)}


def test_stored__by_class_and_version_and_writes_by_their_size() -> None:
    made: Any = ffi.new("struct careful_live_entry *")
    one = made.stored[10][2]
    one.count, one.frames, one.writes, one.bytes = 3, 48, 6, 3 << 16
    one.sum_came_ns, one.sum_ns = 1000, 3 << 33
    one.sum_square_low, one.sum_square_high = 5, 3 << 2
    write = made.writes[9]
    write.count, write.bytes, write.sum_ns, write.sum_square_low = 4, 4 << 15, 400, 40000
    stored, writes = live_latency.stored_in(live_latency.whole(FakeMap(bytes(ffi.buffer(made))), 0))
    squares = (3 << 66) + 5
    assert stored == {(10, 2): live_latency.Stored(3, 48, 6, 3 << 16, 1000, 3 << 33, squares)}
    assert writes == {9: live_latency.Write(4, 4 << 15, 400, 40000)}
    assert cells(FakeMap(bytes(ffi.buffer(made)))) == {}


def test_stored__an_entry_that_is_never_complete() -> None:
    assert live_latency.stored_in(live_latency.whole(FakeMap(entry(3, 4)), 0)) == ({}, {})


def test_read__no_instance() -> None:
    with pytest.raises(CarefulError, match=r"is careful up|not permitted"):
        live_latency.messages("there-is-no-such-instance", with_stored=True)
