"""Reads and writes fragment plans and minpulse of a running instance.

Owns the protocol of abi.h's tune entries: the next version is filled while nobody reads it, then
one word flips. A message under way keeps its version.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from careful._abi import CData, enum_names, ffi, lib, sizeof
from careful.closing import descriptor
from careful.control.instance.maps import PinnedMap
from careful.errors import CarefulError
from careful.plan import CLASS_COUNT, U32_MAX, Plan

#: Sinks that have a minpulse, by name: index in the entry.
SINKS: dict[str, int] = {
    name: value
    for value, name in enum_names("careful_sink", "CAREFUL_SINK_").items()
    if value < lib.CAREFUL_SINKS
}


@dataclass(frozen=True)
class Setting:
    """Settings of one message-size class (struct careful_class).

    Attributes:
        plan: how messages are cut; None in a change: the plan stays.
        minpulse_bytes: sink -> least pulse, bytes; a change may name only some sinks.
    """

    plan: Plan | None
    minpulse_bytes: Mapping[str, int]


#: Indices of the message-size classes.
ALL_CLASSES = tuple(range(CLASS_COUNT))

#: Settings for one peer, or for new ones: one for each message-size class.
Tune = tuple[Setting, ...]


def change(
    fragment_bytes: int | None = None,
    minpulse_bytes: int | None = None,
    classes: Iterable[int] = ALL_CLASSES,
    sinks: Iterable[str] = SINKS,
) -> dict[int, Setting]:
    """Returns the settings that a change makes, class by class; None: no change.

    fragment_bytes: fixed fragment size, payload bytes; minpulse_bytes: least pulse of `sinks`;
    classes: indices of message-size classes. Raises CarefulError if a size is out of range, or
    there is none.
    """
    if fragment_bytes is None and minpulse_bytes is None:
        text = "nothing to set: give --fragment-bytes or --minpulse-bytes"
        raise CarefulError(errno.EINVAL, text)
    for name, value, least in (
        ("--fragment-bytes", fragment_bytes, 1),
        ("--minpulse-bytes", minpulse_bytes, 0),
    ):
        if value is not None and not least <= value <= U32_MAX:
            raise CarefulError(errno.EINVAL, f"{name} {value}: must be from {least} to {U32_MAX}")
    plan = None if fragment_bytes is None else Plan.fixed(fragment_bytes)
    pulses = {} if minpulse_bytes is None else dict.fromkeys(sinks, minpulse_bytes)
    return dict.fromkeys(classes, Setting(plan, pulses))


def _entry(raw: bytes) -> CData:
    entry = ffi.new("struct careful_tune_entry *")
    ffi.memmove(entry, raw, sizeof("careful_tune_entry"))
    return entry


def _active(entry: CData) -> int:
    return int(entry.active) % int(lib.CAREFUL_TUNE_VERSIONS)


def read(tune: PinnedMap, slot: int) -> Tune:
    """Returns the settings in effect for a slot: a peer's, or CAREFUL_TUNE_DEFAULT."""
    entry = _entry(tune.lookup(slot))
    names = [name for name, _ in ffi.typeof("struct careful_plan").fields]
    return tuple(
        Setting(
            Plan(**{name: int(getattr(settings.plan, name)) for name in names}),
            {name: int(settings.minpulse_bytes[index]) for name, index in SINKS.items()},
        )
        for settings in entry.version[_active(entry)].classes
    )


def _write_spare(
    tune: PinnedMap, slot: int, fill: Callable[[CData], None]
) -> tuple[CData, int, int]:
    """Writes the spare version: a copy of the active version that `fill` edits.

    Returns the entry, the active version and the spare version.
    """
    entry = _entry(tune.lookup(slot))
    active = _active(entry)
    spare = (active + 1) % int(lib.CAREFUL_TUNE_VERSIONS)
    entry.version[spare] = entry.version[active]
    fill(entry.version[spare])
    tune.update(slot, bytes(ffi.buffer(entry)))
    return entry, active, spare


def write(tune: PinnedMap, slot: int, fill: Callable[[CData], None]) -> None:
    """Changes a slot's settings: `fill` edits a copy of the version in effect.

    An update copies a whole value in no defined order. So one update writes the new version with
    everything else unchanged, and a second update writes the word that makes it active.
    """
    entry, _, spare = _write_spare(tune, slot, fill)
    entry.active = spare
    tune.update(slot, bytes(ffi.buffer(entry)))


def apply(tune: PinnedMap, slots: Iterable[int], settings: Mapping[int, Setting]) -> None:
    """Sets some classes of each slot. Raises CarefulError if the map refuses."""
    fill = _filler(settings)
    for slot in slots:
        write(tune, slot, fill)


def _filler(settings: Mapping[int, Setting]) -> Callable[[CData], None]:
    # Converted to C once, not for each of the hundreds of slots.
    plans = {
        index: ffi.new("struct careful_plan *", vars(setting.plan))
        for index, setting in settings.items()
        if setting.plan is not None
    }
    pulses = [
        (index, SINKS[name], nbytes)
        for index, setting in settings.items()
        for name, nbytes in setting.minpulse_bytes.items()
    ]

    def fill(version: CData) -> None:
        for index, plan in plans.items():
            version.classes[index].plan = plan[0]
        for index, sink, nbytes in pulses:
            version.classes[index].minpulse_bytes[sink] = nbytes

    return fill


@dataclass(frozen=True)
class Versions:
    """Two versions of a slot's settings, of which one is active at a time.

    active: the version that was in effect; contents: contents of both, to notice changes by other
    programs.
    """

    active: int
    other: int
    contents: bytes


def _contents(entry: CData, *versions: int) -> bytes:
    return b"".join(
        bytes(ffi.buffer(ffi.addressof(entry.version[version]))) for version in versions
    )


def offer(tune: PinnedMap, slot: int, settings: Mapping[int, Setting]) -> Versions:
    """Writes settings of some classes to the spare version; the active one stays.

    Raises CarefulError if the map refuses.
    """
    entry, active, spare = _write_spare(tune, slot, _filler(settings))
    return Versions(active, spare, _contents(entry, active, spare))


def flip(tune: PinnedMap, slot: int, two: Versions) -> bool:
    """Swaps the two versions; returns False if another program changed one of them.

    Raises CarefulError if the map refuses.
    """
    entry = _entry(tune.lookup(slot))
    active = _active(entry)
    if active not in (two.active, two.other):
        return False
    if _contents(entry, two.active, two.other) != two.contents:
        return False
    entry.active = two.active + two.other - active
    tune.update(slot, bytes(ffi.buffer(entry)))
    return True


def all_slots() -> list[int]:
    """Returns all slots, the default first: new peers start with it."""
    return [int(lib.CAREFUL_TUNE_DEFAULT), *range(lib.CAREFUL_PEERS_MAX)]


@contextmanager
def one_writer(pin: os.PathLike[str]) -> Iterator[None]:
    """Locks out other tuners of an instance: there is only one spare version.

    pin: a directory that every tuner of the instance locks.
    """
    with descriptor(os.open(pin, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
