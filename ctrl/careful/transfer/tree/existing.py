"""What becomes of a source whose name the target has already. The one rule for files and trees.

A name that is there is compared: what is equal is done, what is not is refused by name, unless
the options say that it may be replaced. So the same command twice gives the same, and one that
was interrupted goes on with what is missing. A device, fifo or socket is never replaced.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import Enum

from careful.errors import CarefulError, Option
from careful.transfer.file.local import special_there
from careful.transfer.options import Options
from careful.transfer.protocol.entries import Attr, Entry

REFUSED = ("exists and differs; ", Option.REPLACE, " replaces it")


#: How coarse the times of file systems are: ext3, exFAT, UDF, NTFS. FAT's 2 s are not among
#: them: too many files of ext3 look like that.
_GRAINS_NS = (1_000_000_000, 10_000_000, 1_000, 100)


class Fate(Enum):
    """What is done with a file."""

    MOVE = "it comes, whatever is there"
    EQUAL = "what is there is equal, say size and time"
    NEWER = "what is there is newer, and stays"
    COMPARE = "digests decide: equal is done, other is refused"
    DIFFER = "digests decide: equal is done, of others the blocks that differ come"
    REFUSE = "it is refused"


def _is_same_time(there: Attr, mtime_ns: int) -> bool:
    """Reports whether a file has a time, as far as its file system can hold it.

    The kernel rounds a file's own ctime_ns down like any other time, and nobody else sets it. So
    that time shows how coarse the times of this file system are.
    """
    if there.mtime_ns == mtime_ns:
        return True
    for grain in _GRAINS_NS:
        if there.ctime_ns % grain == 0 and there.mtime_ns % grain == 0:
            return mtime_ns // grain * grain == there.mtime_ns
    return False


def fate(source: Attr, there: Attr | None, options: Options) -> Fate:
    """What is done with a file.

    Args:
        source: the file.
        there: what has its name at the target; None: nothing.
        options: update, keep_newer, checksum and replace count.
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
    # Of what takes up nothing, as in sysfs, only reading tells the size.
    may_be_equal = there.bytes == source.bytes or not source.allocated
    return Fate.COMPARE if there.is_file and may_be_equal else Fate.REFUSE


def fate_of(entry: Entry, existing: Mapping[str, Entry], options: Options) -> Fate:
    """What is done with a file of a tree; existing: name -> entry of the target."""
    there = existing.get(entry.name)
    return fate(entry.attr, there.attr if there else None, options)


def refused(there: Attr | None, name: str) -> CarefulError:
    """Why a file does not get its name.

    Args:
        there: what has it.
        name: what people call that.
    """
    if there is not None and there.is_special:
        return special_there(name)
    return CarefulError(errno.EEXIST, REFUSED, name)
