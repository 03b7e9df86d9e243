"""Moves files and symlinks that were named one by one, each with its attributes."""

from __future__ import annotations

import errno
import os
import posixpath

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.file.move import tell_lost
from careful.transfer.options import FileResult
from careful.transfer.protocol.batch import Item, Tree, asked
from careful.transfer.protocol.entries import Attr
from careful.transfer.tasks import all_of
from careful.transfer.tree.attributes import apply_attributes, sync_file_system
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.existing import Fate, fate, refused
from careful.transfer.tree.outcome import Outcome


class Named:
    """Files that were named one by one."""

    def __init__(self, way: Direction, sink: Outcome) -> None:
        self.way, self.sink, self.options = way, sink, sink.options
        self._files: list[tuple[str, str, Attr]] = []
        #: Directories with new names; whether they hold more than files that are already synced.
        self._folders: dict[str, bool] = {}

    def add(self, source: str, target: str, attr: Attr) -> None:
        self.sink.progress.expect(1, attr.bytes)
        self._files.append((source, target, attr))

    async def run(self) -> None:
        """Moves the files, several at a time, and makes them durable."""
        todo = iter(self._files)

        async def worker() -> None:
            for source, target, attr in todo:
                name = self.way.source.name(source)
                try:
                    await self._one(source, target, attr)
                except CarefulError as error:
                    self.sink.fail(name, error)
                self.sink.progress.finished(name)

        width = min(self.options.files_in_flight, len(self._files))
        await all_of(*(worker() for _ in range(width)))
        if not self.options.dry_run:
            for folder, has_more in self._folders.items():
                await self._sync(folder, has_more)

    def _note(self, target: str, more: bool) -> None:
        folder = os.path.dirname(target)
        self._folders[folder] = self._folders.get(folder, False) or more

    async def _sync(self, folder: str, more: bool) -> None:
        if self.options.fsync == "end" or (self.options.sync and more):
            tree = self.way.target.tree(folder or ".")
            await sync_file_system(tree, self.sink)
            tree.close()
        elif self.options.sync:
            try:
                await self.way.target.sync_name(folder)
            except CarefulError as error:
                self.sink.fail(self.way.target.name(folder), error)

    async def _one(self, source: str, target: str, attr: Attr) -> None:
        """Moves a file, unless the existing one decides otherwise, and sets its attributes."""
        names = self.way.source.name(source), self.way.target.name(target)
        there = await self.way.target.stat(target, follow=False)
        what = fate(attr, there, self.options)
        report, known = self.sink.report, (names[0], attr.bytes)
        if what is Fate.NEWER:
            report.newer.append(known)
            return
        result: FileResult | None = None
        if what is Fate.REFUSE or (
            what is Fate.COMPARE and not await self._is_equal(source, target)
        ):
            raise refused(there, names[1])
        if what in (Fate.MOVE, Fate.DIFFER):
            self.sink.note_far(names[0], attr)
            result = await self._moved(source, target, attr, what)
        more = self.options.batch_flags & ~lib.CAREFUL_BATCH_TIME  # the time is set already
        self._note(target, bool(more) or result is None)
        if result is None:
            report.equal.append(known)
        else:
            self.sink.done(result)
        if self.options.batch_flags and not self.options.dry_run:
            await self._attributes(source, target, attr)

    async def _is_equal(self, source: str, target: str) -> bool:
        return (await self.way.common(source, target, self.options.block_bytes))[1]

    async def _moved(self, source: str, target: str, attr: Attr, what: Fate) -> FileResult | None:
        """Returns the moved file, or with dry_run the file to move; None if it is equal."""
        if not self.options.dry_run:
            try:
                return await self.way.copy(source, target, self.options, self.sink.progress)
            except CarefulError as error:
                # It appeared meanwhile.
                if error.errno != errno.EEXIST or not await self._is_equal(source, target):
                    raise
            except BaseException as error:  # a file of several blocks has reported this itself
                if attr.bytes <= self.options.block_bytes:
                    name, progress = self.way.target.name(target), self.sink.progress
                    tell_lost(name, self.options.block_bytes, error, progress)
                raise
            return None
        common, is_same = 0, False
        if what is Fate.DIFFER:
            common, is_same = await self.way.common(source, target, self.options.block_bytes)
        names = self.way.source.name(source), self.way.target.name(target)
        made = FileResult(*names, attr.bytes, None, 0, matched_bytes=common)
        return None if is_same else made

    def _trees(self, source: str, target: str) -> tuple[Tree, Tree, tuple[str, str]]:
        names = posixpath.basename(source), posixpath.basename(target)
        folders = (posixpath.dirname(one) or "." for one in (source, target))
        return self.way.source.tree(next(folders)), self.way.target.tree(next(folders)), names

    async def _attributes(self, source: str, target: str, attr: Attr) -> None:
        one, other, names = self._trees(source, target)
        try:
            await apply_attributes(
                one, other, [(*names, attr)], self.options.batch_flags, self.sink
            )
        finally:
            one.close()
            other.close()

    async def link(self, source: str, target: str) -> None:
        if self.options.dry_run:
            self.sink.report.links += 1
            return
        one, other, names = self._trees(source, target)
        try:
            await self._link(one, other, names)
            self._note(target, True)
        finally:
            one.close()
            other.close()

    async def _link(self, source: Tree, target: Tree, names: tuple[str, str]) -> None:
        flags = self.options.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
        flags |= lib.CAREFUL_BATCH_REPLACE if self.options.replace else 0
        read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(names[0]))
        [found] = await asked(source, [read], flags)
        if not found.status and found.op == lib.CAREFUL_ITEM_SYMLINK:
            item = found.renamed(os.fsencode(names[1]))
            [found] = await asked(target, [item], flags)
            if found.status == errno.EEXIST:
                read = Item(lib.CAREFUL_ITEM_READ, item.name)
                [there] = await asked(target, [read], flags)
                if (there.status, there.op, there.text) == (0, item.op, item.text):
                    self.sink.report.equal.append((source.name(names[0]), 0))
                    return
        if found.status:
            self.sink.fail_errno(source.name(names[0]), found.status, target.name(names[1]))
        else:
            self.sink.report.links += 1
