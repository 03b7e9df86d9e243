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
from careful.transfer.file.partial_file import special_file_error
from careful.transfer.options import Options
from careful.transfer.protocol.entries import Attr, Entry

REFUSED = ("exists and differs; ", Option.REPLACE, " replaces it")


#: Resolutions of file systems' times: ext3, exFAT, UDF, NTFS. FAT's 2 s is left out, because too
#: many files of ext3 would match it.
_RESOLUTIONS_NS = (1_000_000_000, 10_000_000, 1_000, 100)


class Decision(Enum):
    """The decision for a file."""

    MOVE = "move it, whatever is at the target"
    EQUAL = "size and time are equal: leave it"
    NEWER = "the target is newer: leave it"
    COMPARE = "compare digests; refuse it if they differ"
    DIFFER = "compare digests; move the blocks that differ"
    REFUSE = "refuse it"


def _is_same_time(existing: Attr, mtime_ns: int) -> bool:
    """Reports whether a file's mtime is mtime_ns, rounded down to its file system's resolution.

    The trailing zeros of ctime_ns show the resolution: the kernel rounds ctime_ns like any other
    time, and no program can set it.
    """
    if existing.mtime_ns == mtime_ns:
        return True
    for resolution in _RESOLUTIONS_NS:
        if existing.ctime_ns % resolution == 0 and existing.mtime_ns % resolution == 0:
            return mtime_ns // resolution * resolution == existing.mtime_ns
    return False


def decide(source: Attr, existing: Attr | None, options: Options) -> Decision:
    """Returns the decision for a file, by options.update, keep_newer, checksum and replace."""
    if existing is None:
        return Decision.MOVE
    if existing.is_special:
        return Decision.REFUSE
    if options.keep_newer and existing.is_file and existing.mtime_ns > source.mtime_ns:
        return Decision.NEWER
    is_unchanged = existing.bytes == source.bytes and _is_same_time(existing, source.mtime_ns)
    if options.update and existing.is_file and is_unchanged:
        return Decision.EQUAL
    if options.checksum and existing.is_file:
        return Decision.DIFFER
    if options.replace:
        return Decision.MOVE
    # A file without blocks, as in sysfs, has a known size only after reading.
    may_be_equal = existing.bytes == source.bytes or not source.allocated
    return Decision.COMPARE if existing.is_file and may_be_equal else Decision.REFUSE


def decide_entry(entry: Entry, entries: Mapping[str, Entry], options: Options) -> Decision:
    """Returns the decision for a file of a tree. entries: name -> entry of the target."""
    existing_entry = entries.get(entry.name)
    return decide(entry.attr, existing_entry.attr if existing_entry else None, options)


def refusal(existing: Attr | None, name: str) -> CarefulError:
    """Returns the error for a file whose name is taken."""
    if existing is not None and existing.is_special:
        return special_file_error(name)
    return CarefulError(errno.EEXIST, REFUSED, name)
