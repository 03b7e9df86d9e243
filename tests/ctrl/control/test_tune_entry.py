"""Two versions of a tune entry that take turns, and concurrent writers."""

from __future__ import annotations

from typing import Any

import pytest
from careful._abi import ffi, lib, sizeof
from careful.control.plans import tune_entry
from careful.control.plans.tune_entry import Setting
from careful.plan import CLASS_BYTES_FIRST, CLASS_COUNT, Plan


class Memory:
    """A map in memory."""

    def __init__(self) -> None:
        self.values = {0: bytes(sizeof("careful_tune_entry"))}

    def lookup(self, key: int) -> bytes:
        return self.values[key]

    def update(self, key: int, value: bytes) -> None:
        self.values[key] = value


@pytest.fixture
def tune() -> Memory:
    """Returns the entry of a slot with fragments of 3000 bytes in all classes."""
    one = Memory()
    tune_entry.apply(
        one, [0], {index: Setting(Plan.fixed(3000), {}) for index in range(CLASS_COUNT)}
    )
    return one


def active(tune: Memory) -> int:
    entry: Any = ffi.new("struct careful_tune_entry *")
    ffi.memmove(entry, tune.lookup(0), sizeof("careful_tune_entry"))
    return int(entry.active)


def fragments(tune: Memory, index: int) -> int:
    plan = tune_entry.read(tune, 0)[index].plan
    assert plan
    return plan.first_bytes


def test_offer__settings_in_effect_stay(tune: Memory) -> None:
    before = active(tune)
    two = tune_entry.offer(tune, 0, {6: Setting(Plan.fixed(820), {})})
    assert active(tune) == two.active == before
    assert two.other == (before + 1) % lib.CAREFUL_TUNE_VERSIONS
    assert fragments(tune, 6) == 3000


def test_flip__alternates_two_versions(tune: Memory) -> None:
    two = tune_entry.offer(tune, 0, {6: Setting(Plan.fixed(820), {})})
    seen = []
    for _ in range(4):
        assert tune_entry.flip(tune, 0, two)
        seen.append((active(tune), fragments(tune, 6), fragments(tune, 7)))
    assert seen == [(two.other, 820, 3000), (two.active, 3000, 3000)] * 2


@pytest.mark.parametrize("flips", [0, 1])
def test_flip__keeps_settings_made_by_hand(tune: Memory, flips: int) -> None:
    """`tune set` fills the next version, which may be one of the two or the third."""
    two = tune_entry.offer(tune, 0, {6: Setting(Plan.fixed(820), {})})
    for _ in range(flips):
        assert tune_entry.flip(tune, 0, two)
    tune_entry.apply(tune, [0], {6: Setting(Plan.fixed(777), {})})
    assert not tune_entry.flip(tune, 0, two)
    assert fragments(tune, 6) == 777


def test_plan__has_the_numbers_of_the_map() -> None:
    """careful/plan.py repeats abi.h's numbers, so that the model needs no library."""
    assert lib.CAREFUL_CLASSES == CLASS_COUNT
    assert lib.CAREFUL_CLASS0_BYTES == CLASS_BYTES_FIRST
    names = [name for name, _ in ffi.typeof("struct careful_plan").fields]
    assert list(Plan.fixed(100).as_dict()) == names
