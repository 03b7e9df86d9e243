"""Lists trees, here and at a peer: parents first, names relative to the top."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from careful._abi import ffi, lib
from careful.errors import CarefulError, about, check, shown
from careful.transfer.filters import Filters
from careful.transfer.folder import open_folder
from careful.transfer.options import Options
from careful.transfer.protocol.entries import NOTHING, Entry, Listing
from careful.transfer.tree.small_bulk import SmallBatch, split_small_files


def list_local(top: str, root: str | None = None) -> Listing:
    """Lists the tree below a local directory; unreadable directories in it have an error. Raises
    CarefulError: the directory itself cannot be read.
    """
    listing = ffi.new("struct careful_list *")
    with about(shown(top)):
        fd = open_folder(top, root)
    try:
        check(lib.careful_list(fd, listing), shown(top))
        return Listing(bytes(ffi.buffer(listing.entries, listing.bytes)), listing.unreadable)
    finally:
        lib.careful_list_release(listing)
        os.close(fd)


def scan_local(top: str) -> list[Entry]:
    """Returns the entries of list_local()."""
    return list_local(top).entries()


def selected(entries: list[Entry], filters: Filters) -> list[Entry]:
    """Returns the included entries; requested names that do not exist come last."""
    if filters == Filters():
        return entries
    chosen = filters.select((entry.name, entry.attr.is_dir) for entry in entries)
    included = [entry for entry in entries if entry.name in chosen]
    missing = (filters.only or frozenset()) - {entry.name for entry in entries}
    return included + [Entry(name, NOTHING, "", errno.ENOENT) for name in sorted(missing)]


#: Included entries that need individual treatment, and all other small files.
SplitListing = tuple[list[Entry], Sequence[SmallBatch]]


def split_listing(listing: Listing, options: Options, is_target_empty: bool) -> SplitListing:
    """Splits a listing; only a plain transfer to an empty target has small batches."""
    if (
        not is_target_empty
        or options.reads_target
        or options.blake3
        or options.filters != Filters()
    ):
        return selected(listing.entries(), options.filters), ()
    small_batches, rest = split_small_files(listing.data, options)
    return listing.entries(rest), small_batches


def is_missing(error: OSError) -> bool:
    """Reports whether an error means that a name is missing."""
    return isinstance(error, CarefulError) and error.errno in (errno.ENOENT, errno.ENOTDIR)
