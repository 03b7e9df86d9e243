"""A peer's description of its files (block.h): attributes, entries of a listing, paths."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import struct
from collections.abc import Iterable
from typing import NamedTuple

from careful._abi import layout, sizeof
from careful.errors import CarefulError

#: careful_block_attr with signed times, then the rest of careful_block_entry.
_ENTRY = struct.Struct(">4IQqq3QHHI")
assert _ENTRY.size == sizeof("careful_block_entry")


class Attr(NamedTuple):
    """Attributes of a remote file, as of stat(); times in ns since 1970, mode with type bits."""

    mode: int
    nlink: int
    uid: int
    gid: int
    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    allocated: int

    @property
    def is_dir(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_device(self) -> bool:
        return stat.S_ISBLK(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def is_special(self) -> bool:
        """Reports whether the file is a device, a fifo or a socket; these are never replaced."""
        return self.mode != 0 and not (self.is_file or self.is_dir or self.is_link)


assert Attr._fields == tuple(field.name for field in layout("careful_block_attr"))


#: The nearest times that 64 bits hold, ns, for files from before 1678 or after 2262.
FAR_NS = (-(1 << 63), (1 << 63) - 1)

#: Attributes of an entry that could not be read.
NOTHING = Attr(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Entry(NamedTuple):
    """One entry of a listing.

    Attributes:
        name: relative to the listed directory, "/" between components.
        attr: its attributes; all 0 if error is set.
        target: of a symlink.
        error: why the entry could not be read, a positive errno, or 0.
    """

    name: str
    attr: Attr
    target: str
    error: int


def local_attr(st: os.stat_result) -> Attr:
    """Returns the attributes of a local file as a peer would report them."""
    return Attr(
        st.st_mode,
        st.st_nlink,
        st.st_uid,
        st.st_gid,
        st.st_size,
        max(FAR_NS[0], min(st.st_mtime_ns, FAR_NS[1])),
        st.st_ctime_ns,
        st.st_ino,
        st.st_dev,
        st.st_blocks * 512,
    )


def attr_of(fields: dict[str, int]) -> Attr:
    """Returns attributes from the fields of careful_block_attr; times may lie before 1970."""
    for name in ("mtime_ns", "ctime_ns"):
        if fields[name] >= 1 << 63:
            fields[name] -= 1 << 64
    return Attr(**fields)


def relative(path: str) -> str:
    """Returns a path relative to the export, as the service expects."""
    return os.path.normpath(path.lstrip("/") or ".")


def is_safe(name: str) -> bool:
    """Reports whether a peer's name stays below the directory in which it is used."""
    parts = name.split("/")
    return "\0" not in name and not any(part in ("", ".", "..") for part in parts)


def parent(name: str) -> str:
    """Returns the directory of a name; "" is the top."""
    return posixpath.dirname(name)


def ancestors(name: str) -> list[str]:
    """Returns all directories above a name, without the top."""
    above = []
    while name := parent(name):
        above.append(name)
    return above


def parse_page(data: bytes) -> tuple[list[Entry], int]:
    """Returns the entries that are complete in a part of a listing, and the bytes they occupy.
    Raises CarefulError: the listing is malformed, or a name leads out of it.
    """
    size, at = _ENTRY.size, 0
    entries: list[Entry] = []
    while at + size <= len(data):
        *fields, name_bytes, target_bytes, error = _ENTRY.unpack_from(data, at)
        name_end = at + size + name_bytes
        end = name_end + target_bytes
        padded = (end + 7) & ~7
        if padded > len(data):
            break
        name = os.fsdecode(data[at + size : name_end])
        if not is_safe(name):
            raise CarefulError(errno.EPROTO, f"the listing has a bad entry {name!r}")
        target = os.fsdecode(data[name_end:end]) if target_bytes else ""
        entries.append(Entry(name, Attr(*fields), target, error))
        at = padded
    return entries, at


def parse_listing(data: bytes) -> list[Entry]:
    """Returns the entries of a listing; raises as parse_page() does."""
    entries, used = parse_page(data)
    if used < len(data):
        raise CarefulError(errno.EPROTO, "the listing ends in the middle of an entry")
    return entries


def check_one_level(entries: Iterable[Entry]) -> None:
    """Raises CarefulError unless the names of one directory have one component and differ."""
    names: set[str] = set()
    for entry in entries:
        if "/" in entry.name:
            raise CarefulError(errno.EPROTO, f"the listing has a bad entry {entry.name!r}")
        if entry.name in names:
            raise CarefulError(errno.EPROTO, f"the listing has an entry twice: {entry.name!r}")
        names.add(entry.name)


def without_records(count: int) -> list[Entry]:
    """Returns one entry for `count` entries without a record: no request could name their paths."""
    if count <= 0:
        return []
    name = f"({count} with paths that are too long)"
    return [Entry(name, NOTHING, "", errno.ENAMETOOLONG)]


class Listing(NamedTuple):
    """A listing as received.

    Attributes:
        data: careful_block_entry records.
        unreadable: entries that could not be read; some have no record.
    """

    data: bytes
    unreadable: int

    def entries(self, records: bytes | None = None) -> list[Entry]:
        """Returns the entries, and a last one that stands for all entries without a record.

        records: the records to use; must include each one with an error. None: all. Raises
        CarefulError: the listing is malformed, or a name leads out of the listed directory.
        """
        entries = parse_listing(self.data if records is None else records)
        unnamed = self.unreadable - sum(entry.error != 0 for entry in entries)
        return entries + without_records(unnamed)
