"""Lists trees, here and at a peer: parents first, names relative to the top."""

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
from careful.transfer.tree.small_bulk import Part, sift


def list_local(top: str, root: str | None = None) -> Listing:
    """Lists the tree below a local directory; an unreadable directory has error set.

    For `root` see open_folder().

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
    """Returns the entries of list_local()."""
    return list_local(top).entries()


async def scan_remote(remote: BlockClient, top: str) -> list[Entry]:
    """Returns the tree below a peer's directory."""
    return await remote.listing(top, recursive=True)


def selected(entries: list[Entry], filters: Filters) -> list[Entry]:
    """Returns the included entries; requested names that do not exist come last."""
    if filters == Filters():
        return entries
    chosen = filters.select((entry.name, entry.attr.is_dir) for entry in entries)
    found = [entry for entry in entries if entry.name in chosen]
    missing = (filters.only or frozenset()) - {entry.name for entry in entries}
    return found + [Entry(name, NOTHING, "", errno.ENOENT) for name in sorted(missing)]


class Apart(NamedTuple):
    """A listing, taken apart.

    Attributes:
        entries: included entries.
        plain: besides, small files that need no individual treatment.
    """

    entries: list[Entry]
    plain: Sequence[Part]


def taken_apart(listing: Listing, options: Options, is_alone: bool) -> Apart:
    """Takes a listing apart; `is_alone`: the target is empty."""
    if not is_alone or options.looks or options.blake3 or options.filters != Filters():
        return Apart(selected(listing.entries(), options.filters), ())
    sifted = sift(listing.data, options)
    return Apart(listing.entries(sifted.rest), sifted.parts)


def not_there(error: OSError) -> bool:
    """Reports whether an error means that a name is missing."""
    return isinstance(error, CarefulError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
