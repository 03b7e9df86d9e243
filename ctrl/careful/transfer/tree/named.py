"""Files and symlinks that were named one by one, each with its attributes."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.file.blocks import all_of
from careful.transfer.options import FileResult, Options
from careful.transfer.protocol.batch import Item, Tree, parse
from careful.transfer.protocol.block import Entry
from careful.transfer.tree.attributes import apply_attributes
from careful.transfer.tree.copy import is_equal
from careful.transfer.tree.interrupted import CHANGED, again
from careful.transfer.tree.marks import Mark
from careful.transfer.tree.outcome import TEXTS, Sink

#: Moves a file's contents; None: it was equal.
Move = Callable[[Options], Awaitable[FileResult | None]]
#: How much of a file is equal at both ends, and whether all of it is.
Compare = Callable[[], Awaitable[tuple[int, bool]]]


class Singles:
    """Files that were named one by one."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.jobs: list[Callable[[], Awaitable[None]]] = []

    def add(self, name: str, nbytes: int, move: Callable[[], Awaitable[FileResult | None]]) -> None:
        """Plan one file; move() is one() in the end."""
        sink = self.sink
        sink.progress.expect(1, nbytes)

        async def job() -> None:
            try:
                result = await move()
            except CarefulError as error:
                sink.fail(name, error)
            else:
                if result is not None:
                    sink.done(result)
            finally:
                sink.progress.finished(name)

        self.jobs.append(job)

    async def run(self) -> None:
        """Transfer them, several at a time."""
        todo = iter(self.jobs)

        async def worker() -> None:
            for job in todo:
                await job()

        width = min(self.sink.options.files_in_flight, len(self.jobs))
        await all_of(*(worker() for _ in range(width)))

    async def one(
        self,
        ends: tuple[Tree, Tree],
        names: tuple[str, str],
        entries: tuple[Entry, Entry | None],
        move: Move,
        compare: Compare,
        mark: Mark | None,
    ) -> FileResult | None:
        """Transfer a file, unless it is equal, and give it its attributes; None: it was there.

        Args:
            ends: the directories that it stands in, and is to.
            names: in these.
            entries: the source, and what stands at the target.
            move: moves the contents.
            compare: says how much of them is equal, and whether all is.
            mark: of an earlier run, which may have brought it.
        """
        name = ends[0].name(names[0]), ends[1].name(names[1])
        options, source = self.sink.options, entries[0]
        counted = self.sink.report.equal
        result: FileResult | None = None
        if not (options.update and not options.checksum and is_equal(*entries)):
            is_new = mark is not None and mark.brought(names[1], is_dir=False)
            if is_new:
                options = again(self.sink, mark)[0].options
            try:
                if await self._is_brought(entries[1], name[0], mark, compare):
                    counted = self.sink.report.brought
                elif options.dry_run:
                    result = await _rehearsed(name, entries, options, compare)
                else:
                    result = await move(options)
            except CarefulError as error:
                # The peer was not at the end of what the earlier run had asked it for.
                if error.errno != errno.EEXIST or not is_new or not (await compare())[1]:
                    raise
                counted = self.sink.report.brought
        if result is None:
            counted.append((name[0], source.attr.bytes))
        if options.batch_flags and not options.dry_run:
            wanted = [(*names, source.attr)]
            await apply_attributes(*ends, wanted, options.batch_flags, self.sink)
        return result

    async def _is_brought(
        self, there: Entry | None, name: str, mark: Mark | None, compare: Compare
    ) -> bool:
        """Whether an earlier run brought a file; see Continuation.takes()."""
        options = self.sink.options
        if options.restart or options.update or options.checksum or mark is None:
            return False
        if there is None or not there.attr.is_file:
            return False
        if not (mark.brought(there.name, is_dir=False) or options.replace):
            return False
        is_equal = (await compare())[1]
        if not (is_equal or options.replace):
            raise CarefulError(errno.ESTALE, CHANGED, name)
        return is_equal


async def _rehearsed(
    name: tuple[str, str], entries: tuple[Entry, Entry | None], options: Options, compare: Compare
) -> FileResult | None:
    """What moving a file would do; None: it is equal."""
    source, there = entries
    if there is not None and not options.replace:
        raise CarefulError(errno.EEXIST, TEXTS[errno.EEXIST], name[1])
    common, is_same = 0, False
    if options.checksum and there is not None and there.attr.is_file:
        common, is_same = await compare()
    made = FileResult(*name, source.attr.bytes, None, 0, matched_bytes=common)
    return None if is_same else made


async def make_link(
    ends: tuple[Tree, Tree], names: tuple[str, str], sink: Sink, mark: Mark | None
) -> None:
    """Make one symlink what another is, unless an earlier run that left a mark made it."""
    is_brought = mark is not None and mark.brought(names[1], is_dir=False)
    options = again(sink, mark)[0].options if is_brought else sink.options
    flags = options.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
    flags |= lib.CAREFUL_BATCH_REPLACE if options.replace else 0
    if sink.options.dry_run:
        sink.report.links += 1
        return
    read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(names[0]))
    found = next(parse(await ends[0].run(read.packed(), flags)))
    if not found.status and found.op == lib.CAREFUL_ITEM_SYMLINK:
        item = found.renamed(os.fsencode(names[1]))
        found = next(parse(await ends[1].run(item.packed(), flags)))
        if found.status == errno.EEXIST and is_brought:
            read = Item(lib.CAREFUL_ITEM_READ, item.name)
            there = next(parse(await ends[1].run(read.packed(), flags)))
            if (there.status, there.op, there.text) == (0, item.op, item.text):
                return
    if found.status:
        sink.fail_errno(ends[0].name(names[0]), found.status, ends[1].name(names[1]))
    else:
        sink.report.links += 1
