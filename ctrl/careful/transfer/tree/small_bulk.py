"""Moves most of a tree: small files, which Python does not handle one by one.

Owns how a listing is split (careful_list_split), and the buffers of batches, here and at the peer.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from careful._abi import CData, ffi, lib
from careful.errors import CarefulError, check
from careful.transfer.file.holes import GRAIN
from careful.transfer.file.partial_file import digest_of
from careful.transfer.options import FileResult, Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import RemoteTree, Tree, parse
from careful.transfer.protocol.entries import Entry
from careful.transfer.tasks import quietly

#: The most bytes of items that a peer accepts in one batch, and of its answer.
ITEMS_BYTES = 4 << 20
_MEMORY_BYTES = 2 * ITEMS_BYTES


class SmallBatch(NamedTuple):
    """The files of one batch.

    Attributes:
        reads: their READ items. Not a memoryview: collecting one in a cycle while C borrows it
            crashes Python before 3.13 (gh-77894).
        file_count: how many files.
        bytes: of their contents when listed.
    """

    reads: bytes
    file_count: int
    bytes: int

    def entries(self) -> list[Entry]:
        return [Entry(os.fsdecode(one.name), one.attributes, "", 0) for one in parse(self.reads)]


def small_bytes(options: Options) -> int:
    """Returns the largest size of a small file, bytes."""
    return min(batch.SMALL_BYTES, GRAIN - 1) if options.sparse else batch.SMALL_BYTES


def batch_bytes(options: Options) -> int:
    """Returns the most contents of one batch, bytes: with a rate limit, at most one burst."""
    return min(batch.BYTES, options.limit.piece_bytes) if options.limit else batch.BYTES


def split_small_files(listing: bytes, options: Options) -> tuple[list[SmallBatch], bytes]:
    """Splits a listing into small files and the careful_block_entry records of everything else.
    Raises CarefulError: it is malformed, or a name leads out of it.
    """
    settings = ffi.new("struct careful_list_split_how *")
    settings.file_bytes_max, settings.no_links = small_bytes(options), options.hard_links
    settings.part_files_max, settings.part_bytes_max = batch.COUNT, batch_bytes(options)
    split = ffi.new("struct careful_list_split *")
    rc = lib.careful_list_split(ffi.from_buffer(listing), len(listing), settings, split)
    check(rc, "", "the listing has a bad entry" if rc == -errno.EPROTO else "")
    try:
        reads = ffi.buffer(split.reads, split.reads_bytes)
        rest = bytes(ffi.buffer(split.rest, split.rest_bytes))
        slices = [split.parts[index] for index in range(split.parts_count)]
        small_batches = [
            SmallBatch(reads[one.offset : one.offset + one.bytes], one.files, one.data_bytes)
            for one in slices
        ]
    finally:
        lib.careful_list_split_release(split)
    return small_batches, rest


@dataclass(frozen=True)
class MovedBatch:
    """Files that were moved in one batch, as expected.

    Attributes:
        small_batch: the batch.
        files: bytes and digest of each file, struct careful_moved.
        bytes: of all files.
        trees: source and target.
        digest: whether there are digests.
    """

    small_batch: SmallBatch
    files: CData
    bytes: int
    trees: tuple[Tree, Tree]
    digest: bool

    def __len__(self) -> int:
        return self.small_batch.file_count

    def names(self) -> Iterator[str]:
        return (
            self.trees[0].name(os.fsdecode(item.name)) for item in parse(self.small_batch.reads)
        )

    def results(self) -> Iterator[FileResult]:
        for index, item in enumerate(parse(self.small_batch.reads)):
            file, name = self.files[index], os.fsdecode(item.name)
            names = self.trees[0].name(name), self.trees[1].name(name)
            yield FileResult(*names, file.bytes, self._digest(file), 0)

    def _digest(self, file: CData) -> int | None:
        if not self.digest:
            return None
        return digest_of(int(file.digest).to_bytes(8, "big") if file.bytes else b"")  # of one block


def match_answer(
    small_batch: SmallBatch, answer: CData, nbytes: int, trees: tuple[Tree, Tree], digest: bool
) -> MovedBatch | None:
    """Returns the files of a batch if its answer, `nbytes` of memory, is as expected, or None."""
    files = ffi.new("struct careful_moved[]", small_batch.file_count)
    reads = ffi.from_buffer(small_batch.reads)
    if lib.careful_match(
        reads, len(small_batch.reads), answer, nbytes, files, small_batch.file_count
    ):
        return None
    total = sum(files[index].bytes for index in range(small_batch.file_count))
    return MovedBatch(small_batch, files, total, trees, digest)


class BatchBuffers:
    """Memory for one batch, here (as `memory`, and for C as `data`) and at a peer."""

    def __init__(self, tree: RemoteTree) -> None:
        self.remote, self.name = tree.remote, tree.name(".")
        self._base = tree.base
        self._scratch = self._file = -1
        self._closing: asyncio.Task[object] | None = None
        fd = os.memfd_create("careful-batch", os.MFD_CLOEXEC)
        os.ftruncate(fd, _MEMORY_BYTES)
        self.memory = mmap.mmap(fd, _MEMORY_BYTES)
        self.data = ffi.from_buffer(self.memory)
        self._fd = fd

    async def open(self, wait: bool) -> None:
        """Allocates the peer's memory. Raises CarefulError: EMFILE: no memory is free, and `wait`
        is false.
        """
        self._scratch = await self.remote.scratch(self._base, ITEMS_BYTES, wait)
        self._file = await self.remote.add_file(self._fd)

    async def close(self) -> None:
        if self._closing is not None:
            await quietly(self._closing)
        if self._file >= 0:
            await quietly(self.remote.remove_file(self._file))
        if self._scratch >= 0:
            await quietly(self.remote.request(lib.CAREFUL_BLOCK_CLOSE, (self._scratch,)))
        ffi.release(self.data)
        self.memory.close()
        os.close(self._fd)

    async def run(self, nbytes: int, flags: int, file_bytes_max: int) -> tuple[int, int, int]:
        """Runs the items in memory; returns the answer's handle and bytes, and how many failed."""
        store = lib.CAREFUL_IPC_STORE
        await self.remote.move_whole(store, self._scratch, nbytes, self._file, self.name)
        settings = self._scratch, nbytes, flags, file_bytes_max, self.name
        return await batch.run_stored(self.remote, *settings)

    async def load(self, key: int, nbytes: int) -> None:
        """Fetches an answer into memory; the answer's handle ends."""
        try:
            if nbytes > _MEMORY_BYTES:
                raise CarefulError(errno.E2BIG, "the answer is too large", self.name)
            get = lib.CAREFUL_IPC_GET
            await self.remote.move_whole(get, key, nbytes, self._file, self.name)
        finally:
            await self.drop(key)

    async def drop(self, key: int) -> None:
        before, job = self._closing, self.remote.request(lib.CAREFUL_BLOCK_CLOSE, (key,))
        self._closing = asyncio.create_task(job)
        if before is not None:
            await before
