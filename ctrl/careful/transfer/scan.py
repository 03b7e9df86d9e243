"""Trees as lists of entries, here and at a peer: parents first, names relative to the top."""

from __future__ import annotations

import errno
import os
import stat

from careful.errors import CarefulError, from_os
from careful.transfer.block import Attr, BlockClient, Entry
from careful.transfer.entries import NOTHING
from careful.transfer.filters import Filters
from careful.transfer.local import shown


def local_attr(found: os.stat_result) -> Attr:
    """Attributes as a peer would tell them."""
    return Attr(
        found.st_mode,
        found.st_nlink,
        found.st_uid,
        found.st_gid,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
        found.st_ino,
        found.st_dev,
        found.st_blocks * 512,
    )


def _entry(entry: os.DirEntry[str], name: str) -> Entry:
    try:
        attr = local_attr(entry.stat(follow_symlinks=False))
        target = os.readlink(entry.path) if stat.S_ISLNK(attr.mode) else ""
    except OSError as error:
        return Entry(name, NOTHING, "", error.errno or errno.EIO)
    return Entry(name, attr, target, 0)


def scan_local(top: str) -> list[Entry]:
    """The tree below a directory of this machine; a directory that cannot be read has error set.

    Raises:
        CarefulError: the directory itself cannot be read.
    """
    entries: list[Entry] = []
    level: list[tuple[str, int]] = [("", -1)]
    while level:
        below: list[tuple[str, int]] = []
        for name, index in level:
            path = os.path.join(top, name) if name else top
            try:
                with os.scandir(path) as scan:
                    inside = sorted(scan, key=lambda entry: entry.name)
            except OSError as error:
                if index < 0:
                    raise from_os(error, shown(top)) from None
                entries[index] = entries[index]._replace(error=error.errno or errno.EIO)
                continue
            for one in inside:
                found = _entry(one, f"{name}/{one.name}" if name else one.name)
                if found.attr.is_dir:
                    below.append((found.name, len(entries)))
                entries.append(found)
        level = below
    return entries


async def scan_remote(remote: BlockClient, top: str) -> list[Entry]:
    """The tree below a directory of a peer's."""
    return await remote.listing(top, recursive=True)


def selected(entries: list[Entry], filters: Filters) -> list[Entry]:
    """The entries that are meant; names that were asked for and are not there come last."""
    if filters == Filters():
        return entries
    chosen = filters.select((entry.name, entry.attr.is_dir) for entry in entries)
    found = [entry for entry in entries if entry.name in chosen]
    missing = (filters.only or frozenset()) - {entry.name for entry in entries}
    return found + [Entry(name, NOTHING, "", errno.ENOENT) for name in sorted(missing)]


def not_there(error: OSError) -> bool:
    """Whether something is missing, rather than broken."""
    return isinstance(error, CarefulError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
