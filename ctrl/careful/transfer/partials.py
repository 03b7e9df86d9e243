"""Partial files that transfers left, here and at a peer: found, described, removed."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from careful._abi import lib
from careful.errors import CarefulError, meaning
from careful.transfer import batch
from careful.transfer.batch import Item, RemoteTree
from careful.transfer.block import BlockClient
from careful.transfer.local import shown
from careful.transfer.partial import FOOTER_BYTES, NAME, Journal, read_journal

#: One that changed since may belong to a transfer that is under way, seconds; clocks differ,
#: and one that claims to be of tomorrow is not kept for ever.
YOUNG_S = 60.0


@dataclass(frozen=True)
class Found:
    """A partial file.

    Attributes:
        name: its path, as it can be printed.
        path: the same, to be used.
        bytes: of the file that it is to become; None: unknown.
        present_bytes: of these, what is in place; None: unknown.
        source: where it comes from, or "".
        age_s: since it was changed, seconds.
        state: "resumable", "leftover" (no transfer goes on with it), "in use", "removed",
            or why it could not be removed.
    """

    name: str
    path: str
    bytes: int | None
    present_bytes: int | None
    source: str
    age_s: float
    state: str


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _walk(top: str) -> Iterator[str]:
    if NAME.match(os.path.basename(top)) and os.path.isfile(top):
        yield top
    for folder, _, files in os.walk(top):
        for name in files:
            if NAME.match(name):
                yield os.path.join(folder, name)


def _describe(path: str, journal: Journal | None, age_s: float, busy: bool, name: str) -> Found:
    state = "in use" if busy else "leftover" if journal is None else "resumable"
    if journal is None:
        return Found(name, path, None, None, "", age_s, state)
    identity = journal.identity
    present = journal.bytes_in_place
    return Found(name, path, identity.bytes, present, shown(identity.source), age_s, state)


def find_local(top: str, clean: bool) -> list[Found]:
    """Partial files below a directory of this machine.

    Args:
        top: the directory.
        clean: whether those that are not in use are removed.
    """
    found = []
    for path in sorted(_walk(top)):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                age_s = time.time() - os.fstat(fd).st_mtime
                journal = read_journal(fd)
                busy = _is_locked(fd) or (journal is None and abs(age_s) < YOUNG_S)
                one = _describe(path, journal, age_s, busy, shown(path))
                if clean and not busy:
                    os.unlink(path)
                    one = _with_state(one, "removed")
            finally:
                os.close(fd)
            found.append(one)
    return found


def _with_state(one: Found, state: str) -> Found:
    return Found(one.name, one.path, one.bytes, one.present_bytes, one.source, one.age_s, state)


async def find_remote(remote: BlockClient, top: str, clean: bool) -> list[Found]:
    """Partial files below a directory of a peer's; which are in use only a try to remove tells.

    Args:
        remote: the peer's tree.
        top: path in it.
        clean: whether those that are not in use are removed.
    """
    found = []
    now = time.time()
    for entry in await remote.listing(top, recursive=True):
        if not entry.attr.is_file or not NAME.match(os.path.basename(entry.name)):
            continue
        path = entry.name if top == "." else f"{top}/{entry.name}"
        age_s = now - entry.attr.mtime_ns / 1e9
        journal = await _remote_journal(remote, path)
        busy = journal is None and abs(age_s) < YOUNG_S
        found.append(_describe(entry.name, journal, age_s, busy, remote.name(shown(path))))
    if not clean:
        return found
    gone = [one for one in found if one.state != "in use"]
    if not gone:
        return found
    items = [Item(lib.CAREFUL_ITEM_REMOVE, os.fsencode(one.path)) for one in gone]
    answers = batch.parse(await RemoteTree(remote, top).run(batch.joined(items), 0))
    states = {
        one.path: "in use" if answer.status == errno.EBUSY else meaning(answer.status)
        for one, answer in zip(gone, answers, strict=True)
        if answer.status
    }
    states = {one.path: "removed" for one in gone} | states
    return [_with_state(one, states.get(one.path, one.state)) for one in found]


async def _remote_journal(remote: BlockClient, path: str) -> Journal | None:
    """The journal of a peer's partial file."""
    what = remote.name(shown(path))
    try:
        handle, attr = await remote.open(path)
    except CarefulError:
        return None
    try:
        footer_at = attr.bytes - FOOTER_BYTES
        if footer_at < 0:
            return None
        footer = await remote.read(handle, footer_at, FOOTER_BYTES, what)
        nbytes = Journal.bytes_of_tail(footer)
        if not 0 < nbytes <= attr.bytes:
            return None
        return Journal.parse(await remote.read(handle, attr.bytes - nbytes, nbytes, what))
    finally:
        await remote.close(handle, path)
