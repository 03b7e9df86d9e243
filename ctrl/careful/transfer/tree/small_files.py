"""Moves the small files of a tree, many in a message and several messages at a time.

Owns the outcome of each file of a batch. A batch that goes as expected is not examined file by file
(small_bulk.py).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence

from careful._abi import Buffer, lib
from careful.errors import CarefulError
from careful.transfer.file.partial_file import digest_of
from careful.transfer.options import FileResult
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, LocalTree, RemoteTree, Tree
from careful.transfer.protocol.block import Attr, Entry
from careful.transfer.tasks import all_of, in_thread
from careful.transfer.tree.attributes import parts
from careful.transfer.tree.outcome import UNKEPT, Outcome
from careful.transfer.tree.small_bulk import (
    ITEMS_BYTES,
    BatchBuffers,
    Moved,
    Part,
    matched,
    part_bytes,
    small_bytes,
)

#: Batches under way at a time: one is read, one crosses, one is written.
_BATCHES = 3
#: Errors of a batch that is too large for the peer: cut it in two.
_TOO_LARGE = (errno.EOVERFLOW, errno.E2BIG)
_WITH_DATA = batch.packed_attr(Attr(0, 0, 0, 0, 1, 0, 0, 0, 0, 0))


class SmallFiles:
    """Moves small files from one tree to another.

    Args:
        source, target: the two directories.
        flags: CAREFUL_BATCH_*.
        sink: receives every outcome.
        late: receives files whose name is taken.

    Attributes:
        alone: files that are no longer small; the caller moves them.
        linked: names that came, of files with several names.
    """

    def __init__(
        self, source: Tree, target: Tree, flags: int, sink: Outcome, late: list[Entry]
    ) -> None:
        self.source, self.target, self.flags, self.late = source, target, flags, late
        self.sink, self.options = sink, sink.options
        self.alone: list[Entry] = []
        self.linked: set[str] = set()

    async def listed(self, files: Sequence[Entry]) -> None:
        todo = iter(list(parts(files, lambda one: one.attr.bytes, part_bytes(self.options))))

        async def worker() -> None:
            for part in todo:
                await self._limit(sum(one.attr.bytes for one in part))
                await self._batch(part)

        await all_of(*(worker() for _ in range(min(_BATCHES, len(files)))))

    async def sifted(self, files: Sequence[Part]) -> None:
        """Moves files that sift() found."""
        todo = iter(files)

        async def worker(index: int) -> None:
            buffers = await self._buffers(wait=index == 0)
            if buffers is None:
                return
            try:
                for part in todo:
                    await self._limit(part.bytes)
                    await self._part(buffers, part)
            finally:
                await buffers.close()

        await all_of(*(worker(index) for index in range(min(_BATCHES, len(files)))))

    async def _limit(self, nbytes: int) -> None:
        if self.options.limit is not None:
            await self.options.limit.take(nbytes)

    async def _buffers(self, wait: bool) -> BatchBuffers | None:
        remote = self.source if isinstance(self.source, RemoteTree) else self.target
        assert isinstance(remote, RemoteTree)
        for attempt in range(batch.ATTEMPTS):
            buffers = BatchBuffers(remote)
            try:
                await buffers.open(wait)
                return buffers
            except CarefulError as error:
                await buffers.close()
                if error.errno != errno.EMFILE or (wait and attempt + 1 == batch.ATTEMPTS):
                    raise
            except BaseException:
                await buffers.close()
                raise
            if not wait:
                return None
            await asyncio.sleep(batch.wait_s())
        raise AssertionError

    async def _part(self, buffers: BatchBuffers, part: Part) -> None:
        try:
            if isinstance(self.source, LocalTree):
                moved = await self._send(buffers, part)
            else:
                moved = await self._fetch(buffers, part)
        except CarefulError as error:
            if error.errno not in (*_TOO_LARGE, errno.EMFILE):
                raise
            await self._batch(part.entries())
            return
        if moved is not None:
            self.sink.moved(moved)

    def _matched(self, part: Part, data: Buffer, nbytes: int) -> Moved | None:
        ends = self.source, self.target
        return matched(part, data, nbytes, ends, self.options.digest)

    async def _fetch(self, buffers: BatchBuffers, part: Part) -> Moved | None:
        """Fetches a batch; returns None if it was done file by file."""
        target = self.target
        assert isinstance(target, LocalTree)
        buffers.memory[: len(part.reads)] = part.reads
        key, size, _ = await buffers.run(len(part.reads), self.flags, small_bytes(self.options))
        await buffers.load(key, size)

        def make() -> tuple[Moved | None, bytes]:
            moved = self._matched(part, buffers.data, size)
            return moved, target.make(buffers.data, size, self.flags) if moved else b""

        moved, answers = await in_thread(make)
        if moved is not None and not answers:
            return moved
        found = buffers.memory[:size]
        if moved is None:
            await self._place(part.entries(), found)
        else:
            self._settle(part.entries(), list(batch.parse(found)), answers)
        return None

    async def _send(self, buffers: BatchBuffers, part: Part) -> Moved | None:
        """Sends a batch; returns None if it was done file by file."""
        source = self.source
        assert isinstance(source, LocalTree)
        most = small_bytes(self.options)

        def read() -> tuple[int, Moved | None]:
            size = source.read(part.reads, self.flags, most, buffers.data, ITEMS_BYTES)
            return size, self._matched(part, buffers.data, size)

        size, moved = await in_thread(read)
        if moved is None:
            await self._place(part.entries(), buffers.memory[:size])
            return None
        key, answered, failed = await buffers.run(size, self.flags, most)
        if not failed:
            await buffers.drop(key)
            return moved
        found = buffers.memory[:size]
        await buffers.load(key, answered)
        self._settle(part.entries(), list(batch.parse(found)), buffers.memory[:answered])
        return None

    async def _batch(self, part: list[Entry]) -> None:
        wanted = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(one.name), _WITH_DATA) for one in part]
        try:
            await self._place(part, await self.source.run(batch.joined(wanted), self.flags))
        except CarefulError as error:
            if error.errno not in _TOO_LARGE:
                raise
            half = len(part) // 2
            if half:
                await self._batch(part[:half])
                await self._batch(part[half:])
            else:
                self.alone += part

    async def _place(self, part: list[Entry], found: bytes) -> None:
        """Makes the files that were read; leaves out those that are no longer small."""
        items = list(batch.parse(found))
        pairs = zip(part, items, strict=False)
        if len(items) != len(part) or any(
            is_file(item) and item.name != os.fsencode(one.name) for one, item in pairs
        ):
            raise CarefulError(errno.EPROTO, "bad answer to a batch", self.source.name("."))
        files = [is_file(item) for item in items]
        if not all(files):
            found = batch.joined([one for one, ok in zip(items, files, strict=True) if ok])
        answers = await self.target.run(found, self.flags) if any(files) else b""
        for entry, item, ok in zip(part, items, files, strict=True):
            if not ok:
                self._not_small(entry, item.status)
        done = [(one, item) for one, item, ok in zip(part, items, files, strict=True) if ok]
        self._settle([one for one, _ in done], [item for _, item in done], answers)

    def _not_small(self, entry: Entry, status: int) -> None:
        if status in (0, errno.EOVERFLOW, errno.ESTALE):
            self.alone.append(entry)
            return
        name = self.source.name(entry.name)
        self.sink.fail_errno(name, status)
        self.sink.progress.finished(name)

    def _settle(self, part: list[Entry], items: list[Item], answers: bytes) -> None:
        self.sink.progress.moved(sum(len(item.data) for item in items))
        answered = batch.answers_to(self.target, len(part), answers)
        for entry, item, answer in zip(part, items, answered, strict=True):
            self._settle_one(entry, item, answer)

    def _settle_one(self, entry: Entry, item: Item, answer: Item) -> None:
        name, target = self.source.name(entry.name), self.target.name(entry.name)
        if answer.status == errno.EEXIST:
            self.late.append(entry)
        else:
            if answer.status:
                self.sink.fail_errno(name, answer.status, target)
            if answer.status in (0, *UNKEPT):
                self._made(entry, item)
        self.sink.progress.finished(name)

    def _made(self, entry: Entry, item: Item) -> None:
        if entry.attr.nlink > 1:
            self.linked.add(entry.name)
        nbytes, digest = len(item.data), None
        if self.options.digest:  # the file has one block
            digest = digest_of(item.digest.to_bytes(8, "big") if nbytes else b"")
        names = self.source.name(entry.name), self.target.name(entry.name)
        self.sink.done(FileResult(*names, nbytes, digest, 0))


def is_file(item: Item) -> bool:
    """Reports whether the answer to READ is a file with its contents."""
    return not item.status and item.op == lib.CAREFUL_ITEM_FILE
