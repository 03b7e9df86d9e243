"""Most of a tree: small files, that are moved without anybody looking at each.

Owns how a listing is taken apart (careful_sift), and the lanes on which batches cross: memory
of ours and of the peer's that is kept from one batch to the next. What becomes of a batch in
which something is not as expected is small_files.py's.
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
from careful.transfer.file.local import digest_of
from careful.transfer.folder import current_umask
from careful.transfer.options import FileResult, Options
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import RemoteTree, Tree, parse
from careful.transfer.protocol.block import Entry
from careful.transfer.tasks import quietly

#: Items that a peer takes in one batch, and what it may answer, bytes.
ITEMS_BYTES = 4 << 20
_MEMORY_BYTES = 2 * ITEMS_BYTES


class Part(NamedTuple):
    """The files of one batch.

    Attributes:
        reads: READ items of them; no memoryview, which C could not be lent: while it is, and
            part of a cycle, collecting it crashes Python before 3.13 (gh-77894).
        files: how many.
        bytes: of their contents, when they were listed.
    """

    reads: bytes
    files: int
    bytes: int

    def entries(self) -> list[Entry]:
        """The files, as a listing has them."""
        return [Entry(os.fsdecode(one.name), one.found, "", 0) for one in parse(self.reads)]


class Sifted(NamedTuple):
    """A listing, taken apart.

    Attributes:
        parts: small files.
        rest: careful_block_entry records of all else.
    """

    parts: list[Part]
    rest: bytes


def small_bytes(options: Options) -> int:
    """A file up to this is small."""
    return min(batch.SMALL_BYTES, GRAIN - 1) if options.sparse else batch.SMALL_BYTES


def part_bytes(options: Options) -> int:
    """Contents of one batch; with a limit no more than may come at once."""
    return min(batch.BYTES, options.limit.piece_bytes) if options.limit else batch.BYTES


def sift(listing: bytes, options: Options) -> Sifted:
    """Take a listing apart.

    Raises:
        CarefulError: it is none, or has a name that leads out.
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
    """Files that came across in one batch, as expected.

    Attributes:
        part: what was asked for.
        sizes: bytes and digest of each, struct careful_moved.
        bytes: of all.
        ends: where from, and where to.
        digest: whether they have digests.
    """

    part: Part
    sizes: CData
    bytes: int
    ends: tuple[Tree, Tree]
    digest: bool

    def __len__(self) -> int:
        return self.part.files

    def names(self) -> Iterator[str]:
        """The names of the sources, as they can be printed."""
        return (self.ends[0].name(os.fsdecode(item.name)) for item in parse(self.part.reads))

    def results(self) -> Iterator[FileResult]:
        """What was transferred, file by file."""
        for index, item in enumerate(parse(self.part.reads)):
            one, name = self.sizes[index], os.fsdecode(item.name)
            names = self.ends[0].name(name), self.ends[1].name(name)
            yield FileResult(*names, one.bytes, self._digest(one), 0)

    def _digest(self, one: CData) -> int | None:
        if not self.digest:
            return None
        # Of a file of one block.
        return digest_of(int(one.digest).to_bytes(8, "big") if one.bytes else b"")


def matched(
    part: Part, found: CData, nbytes: int, ends: tuple[Tree, Tree], digest: bool
) -> Moved | None:
    """What a batch was answered with, if that is what was asked for.

    Args:
        part: the batch.
        found: the answer, in memory.
        nbytes: of the answer.
        ends: where from, and where to.
        digest: whether there are digests.
    """
    sizes = ffi.new("struct careful_moved[]", part.files)
    reads = ffi.from_buffer(part.reads)
    if lib.careful_match(reads, len(part.reads), found, nbytes, sizes, part.files):
        return None
    total = sum(sizes[index].bytes for index in range(part.files))
    return Moved(part, sizes, total, ends, digest)


class Lane:
    """Memory here and at a peer that batches cross in, one after the other.

    Args:
        tree: the peer's directory.

    Attributes:
        memory: of ours; data is the same for C.
    """

    def __init__(self, tree: RemoteTree) -> None:
        self.remote, self.what = tree.remote, tree.name(".")
        self._base = tree.base
        self._scratch = self._file = -1
        self._closing: asyncio.Task[object] | None = None
        fd = os.memfd_create("careful-lane", os.MFD_CLOEXEC)
        os.ftruncate(fd, _MEMORY_BYTES)
        self.memory = mmap.mmap(fd, _MEMORY_BYTES)
        self.data = ffi.from_buffer(self.memory)
        self._fd = fd

    async def open(self, wait: bool) -> None:
        """Get memory at the peer; wait for it, in turn, or not.

        Raises:
            CarefulError: EMFILE: others have all that it gives us.
        """
        self._scratch = await self.remote.scratch(self._base, ITEMS_BYTES, wait)
        self._file = await self.remote.add_file(self._fd)

    async def close(self) -> None:
        """Let go of it."""
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
        """Run the items that memory begins with; handle and bytes of the answer, and how many
        failed.
        """
        store = lib.CAREFUL_IPC_STORE
        await self.remote.move_whole(store, self._scratch, nbytes, self._file, self.what)
        fields = {"bytes": nbytes, "file_bytes_max": file_bytes_max, "umask": current_umask()}
        payload = pack("careful_block_batch", **fields)
        words = self._scratch, flags
        told = await self.remote.request(lib.CAREFUL_BLOCK_BATCH, words, payload)
        key, high, low, failed = told.check(self.what).args
        return key, high << 32 | low, failed

    async def load(self, key: int, nbytes: int) -> None:
        """Get an answer into memory; its handle ends.

        Raises:
            CarefulError: E2BIG: it is too large.
        """
        try:
            if nbytes > _MEMORY_BYTES:
                raise CarefulError(errno.E2BIG, "the answer is too large", self.what)
            get = lib.CAREFUL_IPC_GET
            await self.remote.move_whole(get, key, nbytes, self._file, self.what)
        finally:
            await self.drop(key)

    async def drop(self, key: int) -> None:
        """End an answer's handle, while other things go on."""
        before, job = self._closing, self.remote.request(lib.CAREFUL_BLOCK_CLOSE, (key,))
        self._closing = asyncio.create_task(job)
        if before is not None:
            await before
