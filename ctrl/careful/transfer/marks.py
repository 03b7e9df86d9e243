"""The mark of a tree on its way: stands in its target until all is there.

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
from dataclasses import asdict, dataclass
from functools import partial
from typing import Protocol

from careful.errors import CarefulError, from_os
from careful.transfer.batch import ATTEMPTS, wait_s
from careful.transfer.block import Attr, BlockClient, Created, Entry
from careful.transfer.local import shown
from careful.transfer.mover import in_thread, quietly
from careful.transfer.options import Options
from careful.transfer.partial import LOCK_S, busy, lock

_MAGIC = b"careful-tree1\n"
#: A larger one is none, bytes.
_BYTES_MAX = 256 << 20
#: Two changes of a file within this may have the same time, ns: the kernel's clock for files
#: ticks at least 100 times a second.
_TICK_NS = 20_000_000
#: Where no mark can be made, nothing else can: whoever tries says so.
_CANNOT = {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.ENOENT}


@dataclass(frozen=True)
class Mark:
    """What was there when the transfer of a tree began.

    Attributes:
        source: the tree's name, for people.
        changed_ns: when anything of the source was changed last (ctime), by its own clock.
        before: names that the target had, with their inodes; "." if it was there itself.
            With update and checksum directories alone: files are looked at in any case.
    """

    source: str
    changed_ns: int
    before: dict[str, int]

    def brought(self, there: Entry) -> bool:
        """Whether what stands in the target came since."""
        return self.before.get(there.name) != there.attr.inode

    def is_doubtful(self, entry: Entry) -> bool:
        """Whether a file of the source may have changed since."""
        return entry.attr.ctime_ns > self.changed_ns - _TICK_NS

    def packed(self) -> bytes:
        """As it is written."""
        return _MAGIC + json.dumps(asdict(self)).encode()


def mark_of(
    source: str, changed_ns: int, existing: Iterable[Entry], top: bool, options: Options
) -> Mark:
    """The mark of a transfer that begins.

    Args:
        source: the tree's name.
        changed_ns: when anything of it was changed last.
        existing: what the target has.
        top: whether the target itself was there.
        options: how.
    """
    compares = options.update or options.checksum
    before = {one.name: one.attr.inode for one in existing if one.attr.is_dir or not compares}
    return Mark(source, changed_ns, before | ({".": 0} if top else {}))


def parse(data: bytes) -> Mark | None:
    """A mark, or None where it is damaged: then nothing had moved."""
    if not data.startswith(_MAGIC):
        return None
    try:
        mark = Mark(**json.loads(data.removeprefix(_MAGIC)))
    except (TypeError, ValueError):
        return None
    fits = isinstance(mark.source, str) and isinstance(mark.changed_ns, int)
    return mark if fits and isinstance(mark.before, dict) else None


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
    """

    def __init__(self, folder: str, tag: int) -> None:
        self._folder, self._tag = folder, tag
        self._path = os.path.join(folder, f".careful-{tag:016x}.part")
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
    """

    def __init__(self, remote: BlockClient, folder: str, tag: int) -> None:
        self._remote, self._folder, self._tag = remote, folder, tag
        self._handle = 0

    @property
    def _path(self) -> str:
        name = f".careful-{self._tag:016x}.part"
        return posixpath.normpath(posixpath.join(self._folder, name))

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
