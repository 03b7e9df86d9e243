"""Client of the block service (block.h): requests to a peer's exported tree."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from careful._abi import ffi, lib, pack, sizeof, unpack
from careful.address import Address
from careful.daemon.client import Answer, AsyncClient
from careful.errors import UNANSWERED, CarefulError, shown
from careful.transfer.folder import current_umask, exists_error
from careful.transfer.protocol.entries import Attr, Entry, Listing, attr_of, check_one_level
from careful.transfer.protocol.ranges import LostError, RangeClient
from careful.transfer.protocol.spool import Spool, available_bytes
from careful.transfer.tasks import quietly
from careful.units import shown_bytes

#: How often to repeat a request that may have run, after a reset.
_ATTEMPTS = 20
#: How long to repeat a request while the peer has no room, and the pause between tries, seconds.
_FULL_S = 30.0
_FULL_PAUSE_S = 0.02
_ATTR_BYTES = sizeof("careful_block_attr")
_OPEN_BYTES = sizeof("careful_block_open")
#: Requests with a path.
_WITH_PATH = (
    lib.CAREFUL_BLOCK_OPEN,
    lib.CAREFUL_BLOCK_LIST,
    lib.CAREFUL_BLOCK_STAT,
    lib.CAREFUL_BLOCK_MKDIR,
)
#: How often a request with a long path asks for a handle while others hold all: half a minute.
_WAITS = 1500
#: Requests that carry a number, so that a repeated request gets the handle of the first one.
_NAMED = (lib.CAREFUL_BLOCK_OPEN, lib.CAREFUL_BLOCK_LIST, lib.CAREFUL_BLOCK_BATCH)
#: How often to repeat a listing whose handle was lost.
_RELISTS = 3
#: args[1] of the reply to an OPEN with COPY.
_COPIED = 2
#: The largest listing, bytes.
_LISTING_MAX = 1 << 30
#: Size of a listing's entries in memory, relative to their records.
_ENTRY_GROWTH = 8


@dataclass(frozen=True, slots=True)
class Created:
    """A file that was opened for writing.

    Attributes:
        handle: of the file.
        continued: whether it is an existing partial file.
        attr: of the file.
    """

    handle: int
    continued: bool
    attr: Attr


def _open_payload(path: str, **fields: int) -> bytes:
    raw = os.fsencode(path)
    return pack("careful_block_open", path_bytes=len(raw), **fields) + raw


class BlockClient(RangeClient):
    """A peer's exported tree; see RangeClient for its arguments."""

    @classmethod
    async def connect(
        cls, ipc: AsyncClient, address: Address, host: str, timeout_s: float = 5.0
    ) -> BlockClient:
        """Opens a session with a peer. Raises CarefulError: the peer is unreachable, silent, of
        another version, or out of windows.

        Args:
            ipc: the connection to the local carefuld.
            address: of the peer.
            host: the peer's name in errors.
            timeout_s: limit of the handshake, and of the peer's silence afterwards, seconds.
        """
        answer = await ipc.ask(
            lib.CAREFUL_IPC_CONNECT, address.sockaddr(), bytes=int(timeout_s * 1000)
        )
        if answer.status == -errno.ETIMEDOUT:
            info = (await ipc.ask(lib.CAREFUL_IPC_INFO)).check(host).payload
            port = address.port or ffi.from_buffer("struct careful_info *", info).port
            raise CarefulError(errno.ETIMEDOUT, UNANSWERED.format(port=port), host)
        answer.check(host)
        return cls(ipc, answer.peer, host, timeout_s, f"{address.ip}%{address.scope}")

    async def request(
        self, handler: int, args: tuple[int, ...] = (), payload: bytes = b""
    ) -> Answer:
        """Sends a request; returns its answer. Repeats the request after a reset, which block.h
        makes safe, and while the peer has no room.
        """
        words = [*args, 0, 0, 0, 0][:4]
        if handler in _NAMED:
            words[2:4] = struct.unpack("=II", os.urandom(8))
        resets, until = 0, time.monotonic() + _FULL_S
        while True:
            answer = await self.ask(lib.CAREFUL_IPC_REQUEST, payload, handler=handler, args=words)
            if answer.status == -errno.EAGAIN and time.monotonic() < until:
                await asyncio.sleep(_FULL_PAUSE_S)
            elif answer.status == -errno.ECONNRESET and resets < _ATTEMPTS:
                resets += 1
                self.retried()
            elif answer.status == -errno.EMSGSIZE and handler in _WITH_PATH:
                return await self._request_long(handler, args, payload)
            else:
                return answer

    async def _request_long(self, handler: int, args: tuple[int, ...], payload: bytes) -> Answer:
        """Sends a request whose path does not fit a frame: stores the path at the peer first."""
        flags = first = args[0] if args else 0
        head, path = b"", payload
        if handler in (lib.CAREFUL_BLOCK_OPEN, lib.CAREFUL_BLOCK_MKDIR):
            fields = unpack("careful_block_open", payload[:_OPEN_BYTES])
            flags, path = fields["flags"], payload[_OPEN_BYTES:]
            fields |= {"flags": flags & ~lib.CAREFUL_BLOCK_WAIT, "path_bytes": 0}
            head = pack("careful_block_open", **fields)
        else:
            first &= ~lib.CAREFUL_BLOCK_WAIT
        for attempt in range(_WAITS):
            memory = await self._path_memory(path)
            try:
                answer = await self.request(handler, (first, memory), head)
            finally:
                await self.request(lib.CAREFUL_BLOCK_CLOSE, (memory,))
            is_full = answer.status == -errno.EMFILE and flags & lib.CAREFUL_BLOCK_WAIT
            if not is_full or attempt + 1 == _WAITS:
                break
            await asyncio.sleep(_FULL_PAUSE_S)
        return answer

    async def _path_memory(self, path: bytes) -> int:
        """Stores a path in the peer's memory; returns the handle."""
        flags = lib.CAREFUL_BLOCK_SCRATCH | lib.CAREFUL_BLOCK_NULL | lib.CAREFUL_BLOCK_WAIT
        payload = _open_payload("", flags=flags, bytes=len(path))
        name = self.name(shown(os.fsdecode(path)))
        handle = (await self.request(lib.CAREFUL_BLOCK_OPEN, (), payload)).check(name).args[0]
        try:
            await self.write(handle, 0, path, name)
        except BaseException:
            await self.request(lib.CAREFUL_BLOCK_CLOSE, (handle,))
            raise
        return handle

    async def stat(self, path: str) -> Attr:
        """Returns the attributes of a path; follows symlinks."""
        answer = await self.request(lib.CAREFUL_BLOCK_STAT, (), os.fsencode(path))
        return self._attr(answer, path)

    async def mkdir(self, path: str, mode: int) -> None:
        """Makes a directory; an existing one is no error."""
        payload = _open_payload(path, mode=mode)
        answer = await self.request(lib.CAREFUL_BLOCK_MKDIR, (), payload)
        self._checked(answer, path)

    async def _open(self, path: str, source: int = 0, **fields: int) -> Answer:
        return await self.request(lib.CAREFUL_BLOCK_OPEN, (source,), _open_payload(path, **fields))

    async def open(self, path: str, wait: bool = False) -> tuple[int, Attr]:
        """Opens a file to read; returns its handle and attributes.

        wait: whether to wait for a free handle; a caller that holds a handle must not wait.
        """
        answer = await self._open(path, flags=lib.CAREFUL_BLOCK_WAIT if wait else 0)
        return answer.args[0], self._attr(answer, path)

    @asynccontextmanager
    async def opened(self, path: str, wait: bool = False) -> AsyncIterator[tuple[int, Attr]]:
        """Yields handle and attributes of a file that is open to read; for `wait` see open()."""
        handle, attr = await self.open(path, wait)
        try:
            yield handle, attr
        finally:
            await quietly(self.close(handle, path))

    async def create(
        self,
        path: str,
        nbytes: int,
        mode: int,
        replace: bool,
        tag: int = 0,
        tail_bytes: int = 0,
        flags: int = 0,
        source: int = 0,
    ) -> Created:
        """Opens a new file, to which commit() gives its name; waits until a handle is free.

        Args:
            path: its final name.
            nbytes: its size.
            mode: permission bits.
            replace: whether to replace an existing file.
            tag: of a partial file, which may exist; 0: a temporary file.
            tail_bytes: room behind a partial file.
            flags: CAREFUL_BLOCK_*.
            source: handle of a file that the peer copies into the new one; 0: none. With a source,
                create() does not wait, because the caller already holds a handle.
        """
        flags |= (
            lib.CAREFUL_BLOCK_CREATE
            | (lib.CAREFUL_BLOCK_COPY if source else lib.CAREFUL_BLOCK_WAIT)
            | (lib.CAREFUL_BLOCK_REPLACE if replace else 0)
        )
        fields = {"mode": mode, "bytes": nbytes, "tag": tag, "tail_bytes": tail_bytes}
        answer = await self._open(path, source, flags=flags, **fields)
        self._check_name(answer, path, replace)
        if source and answer.args[1] != _COPIED:
            await self.close(answer.args[0], path, discard=True)
            raise CarefulError(
                errno.ENOTSUP, "its careful is too old to copy: upgrade it", self.host
            )
        return Created(answer.args[0], answer.args[1] == 1, self._attr(answer, path))

    async def open_null(self, nbytes: int) -> int:
        """Opens a source of `nbytes` zeros that also discards writes; returns its handle."""
        answer = await self._open("", flags=lib.CAREFUL_BLOCK_NULL, bytes=nbytes)
        return answer.check(self.name("null:")).args[0]

    async def open_inplace(self, path: str, wait: bool = False) -> tuple[int, Attr]:
        """Opens a file or block device to write in place; for `wait` see open()."""
        flags = lib.CAREFUL_BLOCK_INPLACE | (lib.CAREFUL_BLOCK_WAIT if wait else 0)
        answer = await self._open(path, flags=flags, bytes=(1 << 63) - 1)
        return answer.args[0], self._attr(answer, path)

    async def scratch(self, path: str, nbytes: int, wait: bool = True) -> int:
        """Allocates memory for a batch in a directory; returns its handle.

        wait: whether to wait until other local programs free some; else EMFILE if none is free.
        """
        flags = lib.CAREFUL_BLOCK_SCRATCH | (lib.CAREFUL_BLOCK_WAIT if wait else 0)
        answer = await self._open(path, flags=flags, bytes=nbytes)
        return self._checked(answer, path).args[0]

    async def commit(
        self,
        handle: int,
        path: str,
        mode: int,
        replace: bool,
        sync: bool,
        mtime_ns: int = 0,
        nbytes: int = 0,
        exact: bool = False,
    ) -> None:
        """Syncs a created file and gives it its name; the handle ends.

        A replaced file keeps its mode, as with cp; a new one gets `mode` without our umask.

        Args:
            handle: of the file.
            path: the subject of errors.
            mode: permission bits.
            replace: whether to replace an existing file.
            sync: whether to sync it.
            mtime_ns: its time; 0: unchanged.
            nbytes: size of a stream.
            exact: whether the file gets `mode` in any case.
        """
        flags = lib.CAREFUL_BLOCK_REPLACE if replace else 0
        flags |= 0 if sync else lib.CAREFUL_BLOCK_NOSYNC
        if exact:
            flags |= lib.CAREFUL_BLOCK_MODE
        else:
            mode &= ~current_umask()
        fields = {"mode": mode, "mtime_ns": mtime_ns & (1 << 64) - 1, "bytes": nbytes}
        payload = _open_payload("", flags=flags, **fields)
        answer = await self.request(lib.CAREFUL_BLOCK_COMMIT, (handle, flags), payload)
        self._check_name(answer, path, replace)

    def _attr(self, answer: Answer, path: str) -> Attr:
        if len(self._checked(answer, path).payload) < _ATTR_BYTES:
            raise CarefulError(errno.EPROTO, "the peer sent no attributes", self.name(path))
        attr = attr_of(unpack("careful_block_attr", answer.payload))
        if attr.bytes >> 63:
            raise CarefulError(
                errno.EPROTO,
                f"the peer reports a file of {attr.bytes} bytes",
                self.name(path),
            )
        return attr

    def _check_name(self, answer: Answer, path: str, replace: bool) -> None:
        if answer.status == -errno.EEXIST and not replace:
            raise exists_error(self.name(path))
        self._checked(answer, path)

    async def close(self, handle: int, path: str, discard: bool = False) -> Attr:
        """Closes a handle; returns the file's present attributes.

        path: the subject of errors. discard: whether to remove a partial file.
        """
        flags = lib.CAREFUL_BLOCK_DISCARD if discard else 0
        answer = await self.request(lib.CAREFUL_BLOCK_CLOSE, (handle, flags))
        return self._attr(answer, path)

    async def digests(
        self, handle: int, offset: int, nbytes: int, block_bytes: int, path: str
    ) -> list[int]:
        """Returns the XXH3 of each block of a range of an open file, computed at the peer."""
        range_, algorithm = (offset, nbytes), lib.CAREFUL_BLOCK_XXH3
        digests = await self.digests_as(algorithm, handle, range_, block_bytes, path)
        return [int.from_bytes(one, "big") for one in digests]

    async def digests_as(
        self, algorithm: int, handle: int, range_: tuple[int, int], block_bytes: int, path: str
    ) -> list[bytes]:
        """Returns digests of each block of a range (offset, bytes) of an open file, computed at
        the peer.
        """
        size = 8 if algorithm == lib.CAREFUL_BLOCK_XXH3 else lib.CAREFUL_DIGEST_BYTES_MAX
        parsed: list[bytes] = []
        offset, end = range_[0], sum(range_)
        while offset < end:
            payload = pack(
                "careful_block_range",
                offset=offset,
                bytes=end - offset,
                block_bytes=block_bytes,
                algorithm=algorithm,
            )
            answer = await self.request(lib.CAREFUL_BLOCK_DIGEST, (handle,), payload)
            count = self._checked(answer, path).args[0]
            count_max = -(-(end - offset) // block_bytes)
            if not 0 < count == len(answer.payload) // size <= count_max:
                raise CarefulError(errno.EPROTO, "the peer sent malformed digests", self.name(path))
            parsed += (answer.payload[at * size : (at + 1) * size] for at in range(count))
            offset += count * block_bytes
        return parsed

    async def listing(self, path: str, recursive: bool = False) -> list[Entry]:
        """Lists a directory, or the whole tree with parents first."""
        entries = (await self.list(path, recursive)).entries()
        if not recursive:
            check_one_level(entries)
        return entries

    async def list(self, path: str, recursive: bool = False) -> Listing:
        """Lists like listing(), but does not parse the records. Raises CarefulError: E2BIG: there
        is no memory for the entries.
        """
        most = available_bytes() // _ENTRY_GROWTH
        with await self.spooled(path, recursive, most) as spool:
            return Listing(spool.data(), spool.unreadable)

    async def spooled(self, path: str, recursive: bool = False, most: int = _LISTING_MAX) -> Spool:
        """Lists a directory or tree of any size, up to `most` bytes, into a file."""
        for _ in range(1 + _RELISTS):
            try:
                return await self._spooled(path, recursive, most)
            except LostError as error:
                lost = error
                self.retried()
        raise CarefulError(errno.ECONNRESET, "", lost.what)

    async def _spooled(self, path: str, recursive: bool, most: int) -> Spool:
        flags = lib.CAREFUL_BLOCK_WAIT | (lib.CAREFUL_BLOCK_RECURSIVE if recursive else 0)
        answer = await self.request(lib.CAREFUL_BLOCK_LIST, (flags,), os.fsencode(path))
        handle, high, low, unreadable = self._checked(answer, path).args
        size = high << 32 | low
        try:
            if size > min(most, _LISTING_MAX):
                text = f"a listing of {shown_bytes(size)} is too large"
                text += " for the memory that is free here" if size > most else ""
                raise CarefulError(errno.E2BIG, text, self.name(path))
            spool = Spool(size, unreadable)
            try:
                name = self.name(path)
                await self.move_through(spool.fd, lib.CAREFUL_IPC_GET, handle, 0, size, name)
            except BaseException:
                spool.close()
                raise
        finally:
            await self.request(lib.CAREFUL_BLOCK_CLOSE, (handle,))
        return spool
