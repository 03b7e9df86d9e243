"""Trees as lists of entries, here and at a peer: parents first, names relative to the top."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from careful._abi import ffi, lib
from careful.errors import CarefulError, check, from_os, shown
from careful.transfer.filters import Filters
from careful.transfer.folder import open_folder
from careful.transfer.options import Options
from careful.transfer.protocol.block import BlockClient, Entry, Listing
from careful.transfer.protocol.entries import NOTHING
from careful.transfer.tree.lanes import Part, sift


def list_local(top: str, root: str | None = None) -> Listing:
    """The tree below a directory of this machine; a directory that cannot be read has error set.

    Args:
        top: the directory.
        root: see open_folder().

    Raises:
        CarefulError: the directory itself cannot be read.
    """
    found = ffi.new("struct careful_list *")
    try:
        fd = open_folder(top, root)
    except OSError as error:
        raise from_os(error, shown(top)) from None
    try:
        check(lib.careful_list(fd, found), shown(top))
        return Listing(bytes(ffi.buffer(found.entries, found.bytes)), found.unreadable)
    finally:
        lib.careful_list_release(found)
        os.close(fd)


def scan_local(top: str) -> list[Entry]:
    """What list_local() lists."""
    return list_local(top).entries()


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


class Apart(NamedTuple):
    """A listing, taken apart.

    Attributes:
        entries: that are meant.
        plain: apart, small files where nothing hangs on any single one.
    """

    entries: list[Entry]
    plain: Sequence[Part]


def taken_apart(listing: Listing, options: Options, is_alone: bool) -> Apart:
    """Take a listing apart; is_alone: the target has nothing yet."""
    if not is_alone or options.looks or options.blake3 or options.filters != Filters():
        return Apart(selected(listing.entries(), options.filters), ())
    sifted = sift(listing.data, options)
    return Apart(listing.entries(sifted.rest), sifted.parts)


def not_there(error: OSError) -> bool:
    """Reports whether something is missing, rather than broken."""
    return isinstance(error, CarefulError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
