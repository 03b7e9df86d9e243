"""Decides what happens to a source whose name exists at the target, for files and trees.

An existing file is compared: an equal one is done, any other is refused unless the options let it
be replaced. So a repeated command changes nothing, and an interrupted one continues. A device, fifo
or socket is never replaced.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import Enum

from careful.errors import CarefulError, Option
from careful.transfer.file.partial_file import special_there
from careful.transfer.options import Options
from careful.transfer.protocol.entries import Attr, Entry

REFUSED = ("exists and differs; ", Option.REPLACE, " replaces it")


#: Resolutions of file systems' times: ext3, exFAT, UDF, NTFS. FAT's 2 s is left out: too many ext3
#: files would match it.
_GRAINS_NS = (1_000_000_000, 10_000_000, 1_000, 100)


class Fate(Enum):
    """The decision for a file."""

    MOVE = "move it, whatever is at the target"
    EQUAL = "size and time are equal: leave it"
    NEWER = "the target is newer: leave it"
    COMPARE = "compare digests; refuse it if they differ"
    DIFFER = "compare digests; move the blocks that differ"
    REFUSE = "refuse it"


def _is_same_time(there: Attr, mtime_ns: int) -> bool:
    """Reports whether a file has a time, within its file system's resolution.

    The kernel rounds ctime_ns like any other time, and no program can set it, so its trailing zeros
    show the resolution.
    """
    if there.mtime_ns == mtime_ns:
        return True
    for grain in _GRAINS_NS:
        if there.ctime_ns % grain == 0 and there.mtime_ns % grain == 0:
            return mtime_ns // grain * grain == there.mtime_ns
    return False


def fate(source: Attr, there: Attr | None, options: Options) -> Fate:
    """Returns the decision for a file.

    Only update, keep_newer, checksum and replace apply.
    """
    if there is None:
        return Fate.MOVE
    if there.is_special:
        return Fate.REFUSE
    if options.keep_newer and there.is_file and there.mtime_ns > source.mtime_ns:
        return Fate.NEWER
    same = there.bytes == source.bytes and _is_same_time(there, source.mtime_ns)
    if options.update and there.is_file and same:
        return Fate.EQUAL
    if options.checksum and there.is_file:
        return Fate.DIFFER
    if options.replace:
        return Fate.MOVE
    # The size of a file without blocks, as in sysfs, is known only after reading.
    may_be_equal = there.bytes == source.bytes or not source.allocated
    return Fate.COMPARE if there.is_file and may_be_equal else Fate.REFUSE


def fate_of(entry: Entry, existing: Mapping[str, Entry], options: Options) -> Fate:
    """Returns the decision for a file of a tree; existing: name -> entry of the target."""
    there = existing.get(entry.name)
    return fate(entry.attr, there.attr if there else None, options)


def refused(there: Attr | None, name: str) -> CarefulError:
    """Returns the error for a file whose name is taken."""
    if there is not None and there.is_special:
        return special_there(name)
    return CarefulError(errno.EEXIST, REFUSED, name)
