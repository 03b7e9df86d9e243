"""The mark of a tree, or of several sources, on the way: in the target until all is there.

Owns what tells the same command, after an interruption, which names an earlier run brought:
those that were not there when it began. A mark is locked while a transfer has it, and looks
like a partial file, so that `partials` lists and clears it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import posixpath
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from careful._abi import lib
from careful.errors import CarefulError, from_os
from careful.transfer.file.blocks import in_thread, quietly
from careful.transfer.file.journal import LOCK_S, busy, lock
from careful.transfer.file.local import shown, sync_directory
from careful.transfer.protocol.batch import ATTEMPTS, Item, RemoteTree, wait_s
from careful.transfer.protocol.block import Attr, BlockClient, Created, Entry

_MAGIC = b"careful-tree2\n"
#: A larger one is none, bytes.
_BYTES_MAX = 256 << 20
#: Where no mark can be made, nothing else can: whoever tries says so.
_CANNOT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.ENOENT}


@dataclass(frozen=True)
class Mark:
    """What was there when a transfer began.

    Names alone, and whatever the options: a run with others may go on, and inodes may be
    others after a mount.

    Attributes:
        source: the tree's name, or what the command's are, for people.
        before: names that the target had, directories with "/" behind; "./" if it was there
            itself.
        kind: what is on its way: a "tree", or what a "command" names.
    """

    source: str
    before: frozenset[str]
    kind: str = "tree"

    def brought(self, name: str, is_dir: bool) -> bool:
        """Whether what stands in the target came since: there was none of its kind."""
        return kept_name(name, is_dir) not in self.before

    def packed(self) -> bytes:
        """As it is written."""
        text = {"source": self.source, "before": sorted(self.before), "kind": self.kind}
        return _MAGIC + json.dumps(text).encode()


def _mark_name(tag: int) -> str:
    return f".careful-{tag:016x}.part"


def kept_name(name: str, is_dir: bool) -> str:
    """A name as marks have it."""
    return name + "/" if is_dir else name


def mark_of(source: str, existing: Iterable[Entry], top: bool) -> Mark:
    """The mark of a transfer that begins.

    Args:
        source: the tree's name.
        existing: what the target has.
        top: whether the target itself was there.
    """
    before = {kept_name(one.name, one.attr.is_dir) for one in existing}
    return Mark(source, frozenset(before | ({"./"} if top else set())))


def parse(data: bytes) -> Mark | None:
    """A mark, or None where it is damaged: then nothing had moved."""
    if not data.startswith(_MAGIC):
        return None
    try:
        found = json.loads(data.removeprefix(_MAGIC))
        source, before = found["source"], found["before"]
        kind = found.get("kind", "tree")
    except (KeyError, TypeError, ValueError):
        return None
    fits = isinstance(source, str) and isinstance(kind, str) and isinstance(before, list)
    if not fits or not all(isinstance(one, str) for one in before):
        return None
    return Mark(source, frozenset(before), kind)


class MarkFile(Protocol):
    """Where a mark stands."""

    async def look(self) -> Mark | None:
        """The mark that an earlier run of the same command left; None: none did."""

    async def begin(self, mark: Mark) -> None:
        """Put it there, and keep others off.

        Raises:
            CarefulError: another transfer has it.
        """

    async def end(self, done: bool) -> None:
        """Let go of it; it goes if all is there."""


class LocalMark:
    """A mark in a directory of this machine.

    Args:
        folder: the target.
        tag: of the command.
        sync: whether it survives a crash of the machine.
    """

    def __init__(self, folder: str, tag: int, sync: bool) -> None:
        self._folder, self._tag, self._sync = folder, tag, sync
        self._path = os.path.join(folder, _mark_name(tag))
        self._fd = -1

    @property
    def is_there(self) -> bool:
        """Whether somebody left one."""
        return os.path.isfile(self._path) and not os.path.islink(self._path)

    async def look(self) -> Mark | None:
        """See MarkFile."""
        try:
            return read_mark(self._path)
        except OSError:
            return None

    async def begin(self, mark: Mark) -> None:
        """See MarkFile."""
        try:
            await in_thread(partial(self._begin, mark))
        except CarefulError as error:
            if error.errno not in _CANNOT:
                raise

    def _begin(self, mark: Mark) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            while True:
                self._fd = os.open(self._path, flags, 0o600)
                lock(self._fd, shown(self._folder))
                if os.fstat(self._fd).st_nlink == 1:
                    break
                os.close(self._fd)  # whoever had it removed it
            data = mark.packed()
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
            if self._sync:
                os.fsync(self._fd)
                sync_directory(self._folder)
        except OSError as error:
            self._close()
            if isinstance(error, CarefulError):
                raise
            raise from_os(error, shown(self._path)) from None

    async def end(self, done: bool) -> None:
        """See MarkFile."""
        if self._fd >= 0 and done:
            with suppress(OSError):  # a directory that nobody may change any longer
                os.unlink(self._path)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_mark(path: str) -> Mark | None:
    """A mark at a local path; None: what is there is none.

    Raises:
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _BYTES_MAX:
            return None
        return parse(os.pread(fd, found.st_size, 0))
    finally:
        os.close(fd)


class RemoteMark:
    """A mark in a directory of a peer's.

    Args:
        remote: the peer's tree.
        folder: the target.
        tag: of the command.
        sync: whether it survives a crash of the machine.
    """

    def __init__(self, remote: BlockClient, folder: str, tag: int, sync: bool) -> None:
        self._remote, self._folder, self._tag, self._sync = remote, folder, tag, sync
        self._handle = 0

    @property
    def _path(self) -> str:
        return posixpath.normpath(posixpath.join(self._folder, _mark_name(self._tag)))

    async def is_there(self) -> bool:
        """Whether somebody left one."""
        try:
            return (await self._remote.stat(self._path)).is_file
        except CarefulError:
            return False

    async def look(self) -> Mark | None:
        """See MarkFile."""
        try:
            handle, attr = await self._remote.open(self._path)
        except CarefulError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                return None
            raise
        try:
            return await read_remote_mark(self._remote, handle, attr, self._path)
        finally:
            await quietly(self._remote.close(handle, self._path))

    async def begin(self, mark: Mark) -> None:
        """See MarkFile."""
        try:
            await self._begin(mark.packed())
        except CarefulError as error:
            if error.errno not in _CANNOT:
                raise

    async def _begin(self, data: bytes) -> None:
        name = self._remote.name(shown(self._folder))
        while True:
            made = await self._create(len(data), name)
            self._handle = made.handle
            if not made.continued or made.attr.bytes == len(data):
                break
            # One that was not written to its end.
            await self._remote.close(made.handle, self._path, discard=True)
            self._handle = 0
        await self._remote.write(self._handle, 0, data, name)
        if self._sync:  # a handle has no sync of its own; if this fails, so does the one at the end
            item = Item(lib.CAREFUL_ITEM_SYNC, b".")
            await RemoteTree(self._remote, self._folder).run(item.packed(), 0)

    async def _create(self, nbytes: int, name: str) -> Created:
        until = time.monotonic() + LOCK_S
        for _ in range(ATTEMPTS):
            try:
                return await self._remote.create(self._path, nbytes, 0o600, True, self._tag)
            except CarefulError as error:
                if error.errno not in (errno.EBUSY, errno.EMFILE):
                    raise
                if error.errno == errno.EBUSY and time.monotonic() >= until:
                    raise busy(name) from None
            await asyncio.sleep(wait_s())
        raise CarefulError(errno.EMFILE, "others of this host have all handles", name)

    async def end(self, done: bool) -> None:
        """See MarkFile."""
        if self._handle:
            await quietly(self._remote.close(self._handle, self._path, discard=done))
            self._handle = 0


async def read_remote_mark(remote: BlockClient, handle: int, attr: Attr, path: str) -> Mark | None:
    """The mark that an open file of a peer's is, or None: it is none."""
    if not attr.is_file or not 0 < attr.bytes <= _BYTES_MAX:
        return None
    name = remote.name(shown(path))
    if await remote.read(handle, 0, min(attr.bytes, len(_MAGIC)), name) != _MAGIC:
        return None
    return parse(await remote.read(handle, 0, attr.bytes, name))
