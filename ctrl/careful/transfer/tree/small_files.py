"""Moves the small files of a tree, many in a message and several messages at a time.

A batch whose answer is as expected is not examined file by file (small_bulk.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from careful._abi import Buffer, lib
from careful.errors import CarefulError
from careful.transfer.file.partial_file import digest_of
from careful.transfer.options import FileResult
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item, LocalTree, RemoteTree, Tree
from careful.transfer.protocol.entries import Attr, Entry
from careful.transfer.tasks import all_of, each, in_thread
from careful.transfer.tree.attributes import batches
from careful.transfer.tree.outcome import ATTRIBUTE_LOST, Outcome
from careful.transfer.tree.small_bulk import (
    ITEMS_BYTES,
    BatchBuffers,
    MovedBatch,
    SmallBatch,
    batch_bytes,
    match_answer,
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
        outcome: receives the outcome of each file.
        appeared: receives files whose name is taken.

    Attributes:
        grown: files that are no longer small; the caller moves them.
        linked: names that were moved, of files with several names.
    """

    def __init__(
        self, source: Tree, target: Tree, flags: int, outcome: Outcome, appeared: list[Entry]
    ) -> None:
        self.source, self.target, self.flags, self.appeared = source, target, flags, appeared
        self.outcome, self.options = outcome, outcome.options
        self.grown: list[Entry] = []
        self.linked: set[str] = set()

    async def move_entries(self, files: Sequence[Entry]) -> None:
        async def move(group: list[Entry]) -> None:
            await self._wait_for_rate(sum(one.attr.bytes for one in group))
            await self._move_entries(group)

        groups = batches(files, lambda one: one.attr.bytes, batch_bytes(self.options))
        await each(groups, _BATCHES, move)

    async def move_batches(self, files: Sequence[SmallBatch]) -> None:
        """Moves files that split_small_files() split off."""
        todo = iter(files)

        async def worker(index: int) -> None:
            buffers = await self._buffers(wait=index == 0)
            if buffers is None:
                return
            try:
                for small_batch in todo:
                    await self._wait_for_rate(small_batch.bytes)
                    await self._move_batch(buffers, small_batch)
            finally:
                await buffers.close()

        await all_of(*(worker(index) for index in range(min(_BATCHES, len(files)))))

    async def _wait_for_rate(self, nbytes: int) -> None:
        if self.options.limit is not None:
            await self.options.limit.take(nbytes)

    async def _buffers(self, wait: bool) -> BatchBuffers | None:
        remote = self.source if isinstance(self.source, RemoteTree) else self.target
        assert isinstance(remote, RemoteTree)

        async def opened() -> BatchBuffers:
            buffers = BatchBuffers(remote)
            try:
                await buffers.open(wait)
            except BaseException:
                await buffers.close()
                raise
            return buffers

        try:
            return await (batch.when_free(opened) if wait else opened())
        except CarefulError as error:
            if wait or error.errno != errno.EMFILE:
                raise
            return None

    async def _move_batch(self, buffers: BatchBuffers, small_batch: SmallBatch) -> None:
        try:
            if isinstance(self.source, LocalTree):
                moved = await self._send(buffers, small_batch)
            else:
                moved = await self._fetch(buffers, small_batch)
        except CarefulError as error:
            if error.errno not in (*_TOO_LARGE, errno.EMFILE):
                raise
            await self._move_entries(small_batch.entries())
            return
        if moved is not None:
            self.outcome.moved(moved)

    def _match_answer(
        self, small_batch: SmallBatch, data: Buffer, nbytes: int
    ) -> MovedBatch | None:
        trees = self.source, self.target
        return match_answer(small_batch, data, nbytes, trees, self.options.digest)

    async def _fetch(self, buffers: BatchBuffers, small_batch: SmallBatch) -> MovedBatch | None:
        """Fetches a batch; returns None if it was done file by file."""
        target = self.target
        assert isinstance(target, LocalTree)
        buffers.memory[: len(small_batch.reads)] = small_batch.reads
        key, size, _ = await buffers.run(
            len(small_batch.reads), self.flags, small_bytes(self.options)
        )
        await buffers.load(key, size)

        def make() -> tuple[MovedBatch | None, bytes]:
            moved = self._match_answer(small_batch, buffers.data, size)
            return moved, target.make(buffers.data, size, self.flags) if moved else b""

        moved, answers = await in_thread(make)
        if moved is not None and not answers:
            return moved
        contents = buffers.memory[:size]
        if moved is None:
            await self._write(small_batch.entries(), contents)
        else:
            self._note_answers(small_batch.entries(), list(batch.parse(contents)), answers)
        return None

    async def _send(self, buffers: BatchBuffers, small_batch: SmallBatch) -> MovedBatch | None:
        """Sends a batch; returns None if it was done file by file."""
        source = self.source
        assert isinstance(source, LocalTree)
        file_bytes_max = small_bytes(self.options)

        def read() -> tuple[int, MovedBatch | None]:
            size = source.read(
                small_batch.reads, self.flags, file_bytes_max, buffers.data, ITEMS_BYTES
            )
            return size, self._match_answer(small_batch, buffers.data, size)

        size, moved = await in_thread(read)
        if moved is None:
            await self._write(small_batch.entries(), buffers.memory[:size])
            return None
        key, answer_bytes, failed = await buffers.run(size, self.flags, file_bytes_max)
        if not failed:
            await buffers.drop(key)
            return moved
        contents = buffers.memory[:size]
        await buffers.load(key, answer_bytes)
        self._note_answers(
            small_batch.entries(), list(batch.parse(contents)), buffers.memory[:answer_bytes]
        )
        return None

    async def _move_entries(self, entries: list[Entry]) -> None:
        reads = [Item(lib.CAREFUL_ITEM_READ, os.fsencode(one.name), _WITH_DATA) for one in entries]
        try:
            await self._write(entries, await self.source.run(batch.joined(reads), self.flags))
        except CarefulError as error:
            if error.errno not in _TOO_LARGE:
                raise
            half = len(entries) // 2
            if half:
                await self._move_entries(entries[:half])
                await self._move_entries(entries[half:])
            else:
                self.grown += entries

    async def _write(self, entries: list[Entry], contents: bytes) -> None:
        """Writes the files that were read; leaves out those that are no longer small."""
        items = list(batch.parse(contents))
        pairs = zip(entries, items, strict=False)
        if len(items) != len(entries) or any(
            has_contents(item) and item.name != os.fsencode(one.name) for one, item in pairs
        ):
            raise CarefulError(
                errno.EPROTO, "the answer to a batch is malformed", self.source.name(".")
            )
        files = [pair for pair in zip(entries, items, strict=True) if has_contents(pair[1])]
        if len(files) < len(items):
            contents = batch.joined([item for _, item in files])
        answers = await self.target.run(contents, self.flags) if files else b""
        for entry, item in zip(entries, items, strict=True):
            if not has_contents(item):
                self._note_unread(entry, item.status)
        self._note_answers([entry for entry, _ in files], [item for _, item in files], answers)

    def _note_unread(self, entry: Entry, status: int) -> None:
        if status in (0, errno.EOVERFLOW, errno.ESTALE):
            self.grown.append(entry)
            return
        name = self.source.name(entry.name)
        self.outcome.fail_errno(name, status)
        self.outcome.progress.finished(name)

    def _note_answers(self, entries: list[Entry], items: list[Item], answers: bytes) -> None:
        self.outcome.progress.moved(sum(len(item.data) for item in items))
        answer_items = batch.answers_to(self.target, len(entries), answers)
        for entry, item, answer in zip(entries, items, answer_items, strict=True):
            self._note_answer(entry, item, answer)

    def _note_answer(self, entry: Entry, item: Item, answer: Item) -> None:
        name, target = self.source.name(entry.name), self.target.name(entry.name)
        if answer.status == errno.EEXIST:
            self.appeared.append(entry)
        else:
            if answer.status:
                self.outcome.fail_errno(name, answer.status, target)
            if answer.status in (0, *ATTRIBUTE_LOST):
                self._note_moved(entry, item)
        self.outcome.progress.finished(name)

    def _note_moved(self, entry: Entry, item: Item) -> None:
        if entry.attr.nlink > 1:
            self.linked.add(entry.name)
        nbytes, digest = len(item.data), None
        if self.options.digest:  # the file has one block
            digest = digest_of(item.digest.to_bytes(8, "big") if nbytes else b"")
        names = self.source.name(entry.name), self.target.name(entry.name)
        self.outcome.done(FileResult(*names, nbytes, digest, 0))


def has_contents(item: Item) -> bool:
    """Reports whether the answer to READ is a file with its contents."""
    return not item.status and item.op == lib.CAREFUL_ITEM_FILE
