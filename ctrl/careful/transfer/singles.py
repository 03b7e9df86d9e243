"""Files and symlinks that were named one by one, each with its attributes."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.attributes import apply_attributes
from careful.transfer.batch import Item, Tree, parse
from careful.transfer.block import Entry
from careful.transfer.mover import all_of
from careful.transfer.options import FileResult
from careful.transfer.sink import TEXTS, Sink
from careful.transfer.tree import is_equal

#: Moves a file's contents; None: it was equal.
Move = Callable[[], Awaitable[FileResult | None]]
#: How much of a file is equal at both ends, and whether all of it is.
Compare = Callable[[], Awaitable[tuple[int, bool]]]


class Singles:
    """Files that were named one by one."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.jobs: list[Callable[[], Awaitable[None]]] = []

    def add(self, name: str, nbytes: int, move: Move) -> None:
        """Plan one file; move() returns None where it was equal."""
        sink = self.sink
        sink.progress.expect(1, nbytes)

        async def job() -> None:
            try:
                result = await move()
            except CarefulError as error:
                sink.fail(name, error)
            else:
                if result is None:
                    sink.report.equal.append((name, nbytes))
                else:
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
    ) -> FileResult | None:
        """Transfer a file, unless it is equal, and give it its attributes.

        Args:
            ends: the directories that it stands in, and is to.
            names: in these.
            entries: the source, and what stands at the target.
            move: moves the contents.
            compare: says how much of them is equal, and whether all is.
        """
        options, source = self.sink.options, entries[0]
        result: FileResult | None = None
        if not (options.update and not options.checksum and is_equal(*entries)):
            if options.dry_run:
                name = ends[0].name(names[0]), ends[1].name(names[1])
                if entries[1] is not None and not options.replace:
                    raise CarefulError(errno.EEXIST, TEXTS[errno.EEXIST], name[1])
                common, is_same = 0, False
                if options.checksum and entries[1] is not None and entries[1].attr.is_file:
                    common, is_same = await compare()
                made = FileResult(*name, source.attr.bytes, None, 0, matched_bytes=common)
                return None if is_same else made
            result = await move()
        if options.batch_flags and not options.dry_run:
            wanted = [(*names, source.attr)]
            await apply_attributes(*ends, wanted, options.batch_flags, self.sink)
        return result


async def make_link(ends: tuple[Tree, Tree], names: tuple[str, str], sink: Sink) -> None:
    """Make one symlink what another is."""
    flags = sink.options.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
    flags |= lib.CAREFUL_BATCH_REPLACE if sink.options.replace else 0
    if sink.options.dry_run:
        sink.report.links += 1
        return
    read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(names[0]))
    found = next(parse(await ends[0].run(read.packed(), flags)))
    if not found.status and found.op == lib.CAREFUL_ITEM_SYMLINK:
        item = found.renamed(os.fsencode(names[1]))
        found = next(parse(await ends[1].run(item.packed(), flags)))
    if found.status:
        sink.fail_errno(ends[0].name(names[0]), found.status, ends[1].name(names[1]))
    else:
        sink.report.links += 1
