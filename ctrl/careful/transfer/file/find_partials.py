"""Finds, describes and removes partial files, here and at a peer."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from careful._abi import lib
from careful.closing import descriptor
from careful.errors import FATAL, CarefulError, from_os, meaning, shown
from careful.transfer.file.journal import Journal, is_partial, read_journal
from careful.transfer.file.resume import read_journal_there
from careful.transfer.folder import Folder, open_folder
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, RemoteTree
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import relative

#: States of success; any other state is a reason for failure.
_STATES = {"resumable", "leftover", "in use", "removed"}


@dataclass(frozen=True)
class PartialFile:
    """A partial file.

    Attributes:
        name: its path, printable.
        path: its path.
        bytes: size of the complete file; None: unknown.
        present_bytes: how many are in place; None: unknown.
        source: its source, or "".
        age_s: since its last change, seconds.
        state: "resumable", "leftover" (no transfer continues it), "in use" or "removed"; else
            why it could not be removed, or its directory could not be read.
    """

    name: str
    path: str
    bytes: int | None
    present_bytes: int | None
    source: str
    age_s: float
    state: str

    @property
    def is_failure(self) -> bool:
        return self.state not in _STATES


@contextmanager
def _claimed(path: str, root: str | None) -> Iterator[tuple[Journal | None, float, bool]]:
    """Opens a partial file; yields its journal, its age in seconds, and whether a transfer has it.

    If none has it, no transfer can lock it meanwhile. Raises OSError: the file cannot be read;
    ELOOP: it is a symlink.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with (
        descriptor(open_folder(os.path.dirname(path), root)) as folder,
        descriptor(os.open(os.path.basename(path), flags, dir_fd=folder)) as fd,
    ):
        # A writer of many files locks their directory (datapath/storage/batch/items.h).
        busy = not (_try_lock(fd) and _try_lock(folder))
        yield read_journal(fd), time.time() - os.fstat(fd).st_mtime, busy


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _walk(top: str, errors: list[OSError]) -> Iterator[str]:
    if is_partial(top) and os.path.lexists(top) and not os.path.isdir(top):
        yield top
        return
    for folder, _, files in os.walk(top, onerror=errors.append):
        yield from (os.path.join(folder, name) for name in files if is_partial(name))


def _describe(
    names: tuple[str, str], journal: Journal | None, age_s: float, busy: bool
) -> PartialFile:
    path, name = names
    state = "in use" if busy else "resumable" if journal else "leftover"
    if journal is not None:
        identity, present = journal.identity, journal.bytes_in_place
        return PartialFile(
            name, path, identity.bytes, present, shown(identity.source), age_s, state
        )
    return PartialFile(name, path, None, None, "", age_s, state)


def find_local(top: str, clean: bool) -> list[PartialFile]:
    """Finds partial files below a local directory; `clean` removes those that are not in use.
    Raises CarefulError: the directory itself cannot be read.
    """
    errors: list[OSError] = []
    paths = sorted(_walk(top, errors))
    for error in errors:
        if error.filename == top:
            raise from_os(error, shown(top))
    failures = [_unreadable_folder(os.fsdecode(one.filename), one.errno or 0) for one in errors]
    return failures + [one for path in paths if (one := _describe_local(path, clean)) is not None]


def _unreadable_folder(path: str, code: int, name: str = "") -> PartialFile:
    return PartialFile(name or shown(path), path, None, None, "", 0.0, meaning(code))


def _describe_local(
    path: str, clean: bool, complete_source: str | None = None, root: str | None = None
) -> PartialFile | None:
    """Describes a local file; returns None if it is gone. `clean` also removes it; with a
    `complete_source`, only if no transfer will continue it.
    """
    try:
        with _claimed(path, root) as (journal, age_s, busy):
            partial = _describe((path, shown(path)), journal, age_s, busy)
            is_unwanted = complete_source is None or _is_abandoned(partial, complete_source)
            return _removed(partial, root) if clean and not busy and is_unwanted else partial
    except FileNotFoundError:
        return None
    except OSError as error:
        return _describe_unreadable(path, clean and complete_source is None, error)


def _describe_unreadable(path: str, clean: bool, error: OSError) -> PartialFile | None:
    """Describes a symlink or unreadable file, which no transfer continues."""
    try:
        st = os.lstat(path)
    except FileNotFoundError:
        return None
    state = "leftover" if stat.S_ISLNK(st.st_mode) else meaning(error.errno or 0)
    partial = PartialFile(shown(path), path, None, None, "", time.time() - st.st_mtime, state)
    return _removed(partial) if clean and state == "leftover" else partial


def _removed(partial: PartialFile, root: str | None = None) -> PartialFile:
    try:
        with Folder(partial.path, root) as folder:
            os.unlink(folder.name, dir_fd=folder.fd)
    except OSError as error:
        return replace(partial, state=meaning(error.errno or 0))
    return replace(partial, state="removed")


def _is_abandoned(partial: PartialFile, complete_source: str) -> bool:
    """Reports whether no transfer will continue a partial file.

    complete_source: a source whose transfer is complete, as journals name it, or "".
    """
    top = (
        complete_source.removesuffix("/")
        if complete_source.endswith(":/")
        else complete_source.rstrip("/") + "/"
    )
    return partial.state == "leftover" or (complete_source != "" and partial.source.startswith(top))


def clear_local(paths: list[str], complete_source: str, root: str | None = None) -> None:
    """Removes partial files that no transfer will continue; see _is_abandoned()."""
    for path in paths:
        _describe_local(path, clean=True, complete_source=complete_source, root=root)


async def find_remote(remote: BlockClient, top: str, clean: bool) -> list[PartialFile]:
    """Finds partial files below a peer's directory; `clean` removes those that are not in use.
    Only an attempt to remove a file shows whether it is in use.
    """
    found, failures, top = list[PartialFile](), list[PartialFile](), relative(top)
    for entry in await remote.listing(top, recursive=True):
        path = entry.name if top == "." else f"{top}/{entry.name}"
        name = remote.name(shown(path))
        if entry.error:
            failures.append(_unreadable_folder(entry.name, entry.error, name))
        elif is_partial(entry.name) and not entry.attr.is_dir:
            journal = await _remote_journal(remote, path) if entry.attr.is_file else None
            age_s, names = time.time() - entry.attr.mtime_ns / 1e9, (entry.name, name)
            found.append(_describe(names, journal, age_s, False))
    return failures + (await _cleared(remote, top, found) if clean else found)


async def _cleared(remote: BlockClient, top: str, partials: list[PartialFile]) -> list[PartialFile]:
    if not partials:
        return []
    items = [Item(lib.CAREFUL_ITEM_REMOVE, os.fsencode(one.path)) for one in partials]
    answers = await batch.run_items(RemoteTree(remote, top), items)
    results = []
    for one, answer in zip(partials, answers, strict=True):
        busy = answer.status == errno.EBUSY
        state = "in use" if busy else meaning(answer.status) if answer.status else "removed"
        results.append(replace(one, state=state))
    return results


async def clear_remote(
    remote: BlockClient, top: str, names: list[str], complete_source: str
) -> None:
    """Removes partial files of a peer that no transfer will continue; see _is_abandoned()."""
    partials = []
    for name in names:
        path = name if top == "." else f"{top}/{name}"
        one = _describe((name, name), await _remote_journal(remote, path), 0.0, False)
        if _is_abandoned(one, complete_source):
            partials.append(one)
    await _cleared(remote, top, partials)


async def _remote_journal(remote: BlockClient, path: str) -> Journal | None:
    try:
        async with remote.opened(path) as (handle, attr):
            return await read_journal_there(remote, handle, attr.bytes, path)
    except CarefulError as error:
        if error.errno in FATAL:
            raise
        return None
