"""Moves most of a tree: small files, which Python does not handle one by one.

Owns how a listing is taken apart (careful_sift), and the buffers of batches, here and at the peer.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from careful._abi import CData, ffi, lib, pack
from careful.errors import CarefulError, check
from careful.transfer.file.holes import GRAIN
from careful.transfer.file.partial_file import digest_of
from careful.transfer.folder import current_umask
from careful.transfer.options import FileResult, Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import RemoteTree, Tree, parse
from careful.transfer.protocol.block import Entry
from careful.transfer.tasks import quietly

#: The most bytes of items that a peer accepts in one batch, and of its answer.
ITEMS_BYTES = 4 << 20
_MEMORY_BYTES = 2 * ITEMS_BYTES


class Part(NamedTuple):
    """The files of one batch.

    Attributes:
        reads: their READ items. Not a memoryview: collecting one in a cycle while C borrows it
            crashes Python before 3.13 (gh-77894).
        files: how many.
        bytes: of their contents when listed.
    """

    reads: bytes
    files: int
    bytes: int

    def entries(self) -> list[Entry]:
        return [Entry(os.fsdecode(one.name), one.found, "", 0) for one in parse(self.reads)]


class Sifted(NamedTuple):
    """A listing, taken apart.

    Attributes:
        parts: small files.
        rest: careful_block_entry records of everything else.
    """

    parts: list[Part]
    rest: bytes


def small_bytes(options: Options) -> int:
    """Returns the largest size of a small file, bytes."""
    return min(batch.SMALL_BYTES, GRAIN - 1) if options.sparse else batch.SMALL_BYTES


def part_bytes(options: Options) -> int:
    """Returns the contents of one batch, bytes; a rate limit keeps it within one burst."""
    return min(batch.BYTES, options.limit.piece_bytes) if options.limit else batch.BYTES


def sift(listing: bytes, options: Options) -> Sifted:
    """Takes a listing apart. Raises CarefulError: the listing is malformed, or a name leads out of
    it.
    """
    how = ffi.new("struct careful_sift_how *")
    how.file_bytes_max, how.no_links = small_bytes(options), options.hard_links
    how.part_files_max, how.part_bytes_max = batch.COUNT, part_bytes(options)
    found = ffi.new("struct careful_sifted *")
    rc = lib.careful_sift(ffi.from_buffer(listing), len(listing), how, found)
    check(rc, "", "the listing has a bad entry" if rc == -errno.EPROTO else "")
    try:
        reads = ffi.buffer(found.reads, found.reads_bytes)
        rest = bytes(ffi.buffer(found.rest, found.rest_bytes))
        places = [found.parts[index] for index in range(found.parts_count)]
        parts = [
            Part(reads[one.offset : one.offset + one.bytes], one.files, one.data_bytes)
            for one in places
        ]
    finally:
        lib.careful_sift_release(found)
    return Sifted(parts, rest)


@dataclass(frozen=True)
class Moved:
    """Files that were moved in one batch, as expected.

    Attributes:
        part: the batch.
        sizes: bytes and digest of each file, struct careful_moved.
        bytes: of all files.
        ends: source and target.
        digest: whether there are digests.
    """

    part: Part
    sizes: CData
    bytes: int
    ends: tuple[Tree, Tree]
    digest: bool

    def __len__(self) -> int:
        return self.part.files

    def names(self) -> Iterator[str]:
        return (self.ends[0].name(os.fsdecode(item.name)) for item in parse(self.part.reads))

    def results(self) -> Iterator[FileResult]:
        for index, item in enumerate(parse(self.part.reads)):
            one, name = self.sizes[index], os.fsdecode(item.name)
            names = self.ends[0].name(name), self.ends[1].name(name)
            yield FileResult(*names, one.bytes, self._digest(one), 0)

    def _digest(self, one: CData) -> int | None:
        if not self.digest:
            return None
        # The file has one block.
        return digest_of(int(one.digest).to_bytes(8, "big") if one.bytes else b"")


def matched(
    part: Part, found: CData, nbytes: int, ends: tuple[Tree, Tree], digest: bool
) -> Moved | None:
    """Returns the files of a batch if its answer is as expected, or None.

    The answer has `nbytes`, at `found`.
    """
    sizes = ffi.new("struct careful_moved[]", part.files)
    reads = ffi.from_buffer(part.reads)
    if lib.careful_match(reads, len(part.reads), found, nbytes, sizes, part.files):
        return None
    total = sum(sizes[index].bytes for index in range(part.files))
    return Moved(part, sizes, total, ends, digest)


class BatchBuffers:
    """Memory here and at a peer. It holds one batch at a time.

    Attributes:
        memory: ours; data is the same memory for C.
    """

    def __init__(self, tree: RemoteTree) -> None:
        self.remote, self.what = tree.remote, tree.name(".")
        self._base = tree.base
        self._scratch = self._file = -1
        self._closing: asyncio.Task[object] | None = None
        fd = os.memfd_create("careful-batch", os.MFD_CLOEXEC)
        os.ftruncate(fd, _MEMORY_BYTES)
        self.memory = mmap.mmap(fd, _MEMORY_BYTES)
        self.data = ffi.from_buffer(self.memory)
        self._fd = fd

    async def open(self, wait: bool) -> None:
        """Allocates the peer's memory; with `wait`, waits for a turn. Raises CarefulError: EMFILE:
        other programs have all of our memory there.
        """
        self._scratch = await self.remote.scratch(self._base, ITEMS_BYTES, wait)
        self._file = await self.remote.add_file(self._fd)

    async def close(self) -> None:
        if self._closing is not None:
            await quietly(self._done(self._closing))
        if self._file >= 0:
            await quietly(self.remote.remove_file(self._file))
        if self._scratch >= 0:
            await quietly(self.remote.request(lib.CAREFUL_BLOCK_CLOSE, (self._scratch,)))
        ffi.release(self.data)
        self.memory.close()
        os.close(self._fd)

    async def _done(self, task: asyncio.Task[object]) -> None:
        await task

    async def run(self, nbytes: int, flags: int, file_bytes_max: int) -> tuple[int, int, int]:
        """Runs the items in memory; returns the answer's handle and bytes, and how many failed."""
        store = lib.CAREFUL_IPC_STORE
        await self.remote.move_whole(store, self._scratch, nbytes, self._file, self.what)
        fields = {"bytes": nbytes, "file_bytes_max": file_bytes_max, "umask": current_umask()}
        payload = pack("careful_block_batch", **fields)
        words = self._scratch, flags
        reply = await self.remote.request(lib.CAREFUL_BLOCK_BATCH, words, payload)
        key, high, low, failed = reply.check(self.what).args
        return key, high << 32 | low, failed

    async def load(self, key: int, nbytes: int) -> None:
        """Fetches an answer into memory; its handle ends. Raises CarefulError: E2BIG: the answer is
        too large.
        """
        try:
            if nbytes > _MEMORY_BYTES:
                raise CarefulError(errno.E2BIG, "the answer is too large", self.what)
            get = lib.CAREFUL_IPC_GET
            await self.remote.move_whole(get, key, nbytes, self._file, self.what)
        finally:
            await self.drop(key)

    async def drop(self, key: int) -> None:
        before, job = self._closing, self.remote.request(lib.CAREFUL_BLOCK_CLOSE, (key,))
        self._closing = asyncio.create_task(job)
        if before is not None:
            await before
