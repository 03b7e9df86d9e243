"""Finds, describes and removes partial files, here and at a peer."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from careful._abi import lib
from careful.errors import FATAL, CarefulError, from_os, meaning, shown
from careful.transfer.file.journal import Journal, is_partial, read_journal
from careful.transfer.file.resume import read_journal_there
from careful.transfer.folder import Folder, open_folder
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, RemoteTree
from careful.transfer.protocol.block import BlockClient, Entry, relative

#: States of success; any other state is a reason for failure.
_STATES = {"resumable", "leftover", "in use", "removed"}


@dataclass(frozen=True)
class Found:
    """A partial file.

    Attributes:
        name: its path, printable.
        path: its path.
        bytes: size of the complete file; None: unknown.
        present_bytes: how many are in place; None: unknown.
        source: its source, or "".
        age_s: since its last change, seconds.
        state: "resumable", "leftover" (no transfer continues it), "in use", "removed", or why
            it could not be removed or its directory not be read.
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


class _Claim:
    """A lock on a partial file that is to be removed: no transfer has it, or can take it.

    For `root` see Folder.

    Attributes:
        journal: of the file.
        busy: whether a transfer has it.
        age_s: since its last change, seconds.

    Raises:
        OSError: the file cannot be read; ELOOP: it is a symlink.
    """

    def __init__(self, path: str, root: str | None) -> None:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._folder = open_folder(os.path.dirname(path), root)
        try:
            self._fd = os.open(os.path.basename(path), flags, dir_fd=self._folder)
        except BaseException:
            os.close(self._folder)
            raise
        try:
            self.age_s = time.time() - os.fstat(self._fd).st_mtime
            self.journal = read_journal(self._fd)
            # A writer of many files locks their directory (datapath/storage/batch/items.h).
            self.busy = not (_locked(self._fd) and _locked(self._folder))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._fd)
        os.close(self._folder)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _walk(top: str, unread: list[OSError]) -> Iterator[str]:
    if is_partial(top) and os.path.lexists(top) and not os.path.isdir(top):
        yield top
        return
    for folder, _, files in os.walk(top, onerror=unread.append):
        yield from (os.path.join(folder, name) for name in files if is_partial(name))


def _describe(where: tuple[str, str], journal: Journal | None, age_s: float, busy: bool) -> Found:
    path, name = where
    state = "in use" if busy else "resumable" if journal else "leftover"
    if journal is not None:
        identity, present = journal.identity, journal.bytes_in_place
        return Found(name, path, identity.bytes, present, shown(identity.source), age_s, state)
    return Found(name, path, None, None, "", age_s, state)


def find_local(top: str, clean: bool) -> list[Found]:
    """Finds partial files below a local directory.

    `clean` removes those that are not in use.

    Raises:
        CarefulError: the directory itself cannot be read.
    """
    unread: list[OSError] = []
    paths = sorted(_walk(top, unread))
    for error in unread:
        if error.filename == top:
            raise from_os(error, shown(top))
    bad = [_unread(os.fsdecode(one.filename), one.errno or 0) for one in unread]
    return bad + [one for path in paths if (one := _find_one(path, clean)) is not None]


def _unread(path: str, code: int, name: str = "") -> Found:
    return Found(name or shown(path), path, None, None, "", 0.0, meaning(code))


def _find_one(
    path: str, clean: bool, whole: str | None = None, root: str | None = None
) -> Found | None:
    """Describes a local path; returns None if it is gone. If the source `whole` is complete,
    `clean` also removes its partial files.
    """
    try:
        claim = _Claim(path, root)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _find_unreadable(path, clean and whole is None, error)
    try:
        one = _describe((path, shown(path)), claim.journal, claim.age_s, claim.busy)
        if clean and not claim.busy and (whole is None or _serves_nobody(one, whole)):
            one = _removed(one, root)
        return one
    finally:
        claim.close()


def _find_unreadable(path: str, clean: bool, error: OSError) -> Found | None:
    """Describes a symlink or unreadable file, which no transfer continues."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    state = "leftover" if stat.S_ISLNK(found.st_mode) else meaning(error.errno or 0)
    one = Found(shown(path), path, None, None, "", time.time() - found.st_mtime, state)
    return _removed(one) if clean and state == "leftover" else one


def _removed(one: Found, root: str | None = None) -> Found:
    try:
        with Folder(one.path, root) as folder:
            os.unlink(folder.name, dir_fd=folder.fd)
    except OSError as error:
        return replace(one, state=meaning(error.errno or 0))
    return replace(one, state="removed")


def _serves_nobody(one: Found, whole: str) -> bool:
    """Reports whether no transfer will continue a partial file.

    `whole` is a complete source, as journals name it, or "".
    """
    top = whole.removesuffix("/") if whole.endswith(":/") else whole.rstrip("/") + "/"
    return one.state == "leftover" or (whole != "" and one.source.startswith(top))


def clear_local(paths: list[str], whole: str, root: str | None = None) -> None:
    """Removes partial files that no transfer will continue; see _serves_nobody()."""
    for path in paths:
        _find_one(path, clean=True, whole=whole, root=root)


async def find_remote(remote: BlockClient, top: str, clean: bool) -> list[Found]:
    """Finds partial files below a peer's directory; only an attempt to remove shows which are in
    use.

    `clean` removes those that are not in use.
    """
    found, bad, top = list[Found](), list[Found](), relative(top)
    for entry in await remote.listing(top, recursive=True):
        if entry.error:
            path = entry.name if top == "." else f"{top}/{entry.name}"
            bad.append(_unread(entry.name, entry.error, remote.name(shown(path))))
        elif is_partial(entry.name) and not entry.attr.is_dir:
            found.append(await _find_remote_one(remote, top, entry))
    return bad + (await _cleared(remote, top, found) if clean else found)


async def _find_remote_one(remote: BlockClient, top: str, entry: Entry) -> Found:
    path = entry.name if top == "." else f"{top}/{entry.name}"
    age_s = time.time() - entry.attr.mtime_ns / 1e9
    journal = await _remote_journal(remote, path) if entry.attr.is_file else None
    return _describe((entry.name, remote.name(shown(path))), journal, age_s, False)


async def _cleared(remote: BlockClient, top: str, gone: list[Found]) -> list[Found]:
    if not gone:
        return []
    items = [Item(lib.CAREFUL_ITEM_REMOVE, os.fsencode(one.path)) for one in gone]
    answers = await batch.asked(RemoteTree(remote, top), items)
    found = []
    for one, answer in zip(gone, answers, strict=True):
        busy = answer.status == errno.EBUSY
        state = "in use" if busy else meaning(answer.status) if answer.status else "removed"
        found.append(replace(one, state=state))
    return found


async def clear_remote(remote: BlockClient, top: str, names: list[str], whole: str) -> None:
    """Removes the partial files of a peer that no transfer will continue.

    `whole` is a complete source, or "".
    """
    gone = []
    for name in names:
        path = name if top == "." else f"{top}/{name}"
        one = _describe((name, name), await _remote_journal(remote, path), 0.0, False)
        if _serves_nobody(one, whole):
            gone.append(one)
    await _cleared(remote, top, gone)


async def _remote_journal(remote: BlockClient, path: str) -> Journal | None:
    try:
        handle, attr = await remote.open(path)
    except CarefulError:
        return None
    try:
        return await read_journal_there(remote, handle, attr.bytes, path)
    except CarefulError as error:
        if error.errno in FATAL:
            raise
        return None
    finally:
        await remote.close(handle, path)
