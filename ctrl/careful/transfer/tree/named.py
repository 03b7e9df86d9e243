"""Moves files and symlinks that the user named one by one, each with its attributes."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterator
from contextlib import closing, contextmanager

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.file.move import report_nothing_kept
from careful.transfer.options import FileResult
from careful.transfer.protocol.batch import Item, Tree, run_items
from careful.transfer.protocol.entries import Attr
from careful.transfer.tasks import each
from careful.transfer.tree.attributes import apply_attributes, sync_file_system
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.existing import Decision, decide, refusal
from careful.transfer.tree.outcome import Outcome


class Named:
    """Files that the user named one by one."""

    def __init__(self, direction: Direction, outcome: Outcome) -> None:
        self.direction, self.outcome, self.options = direction, outcome, outcome.options
        self.source, self.target = direction.source, direction.target
        self._files: list[tuple[str, str, Attr]] = []
        #: Directories with new names -> whether these need more than a sync of the directory.
        self._folders: dict[str, bool] = {}

    def add(self, source: str, target: str, attr: Attr) -> None:
        self.outcome.progress.expect(1, attr.bytes)
        self._files.append((source, target, attr))

    async def run(self) -> None:
        """Moves the files, several at a time, and makes them durable."""

        async def move(file: tuple[str, str, Attr]) -> None:
            name = self.source.name(file[0])
            try:
                await self._move_one(*file)
            except CarefulError as error:
                self.outcome.fail(name, error)
            self.outcome.progress.finished(name)

        await each(self._files, self.options.files_in_flight, move)
        if not self.options.dry_run:
            for folder, has_more in self._folders.items():
                await self._sync(folder, has_more)

    def _note(self, target: str, has_more: bool) -> None:
        folder = os.path.dirname(target)
        self._folders[folder] = self._folders.get(folder, False) or has_more

    async def _sync(self, folder: str, has_more: bool) -> None:
        if self.options.fsync == "end" or (self.options.sync and has_more):
            with closing(self.target.tree(folder or ".")) as tree:
                await sync_file_system(tree, self.outcome)
        elif self.options.sync:
            try:
                await self.target.sync_name(folder)
            except CarefulError as error:
                self.outcome.fail(self.target.name(folder), error)

    async def _move_one(self, source: str, target: str, attr: Attr) -> None:
        """Moves a file and sets its attributes, unless an existing target must stay."""
        names = self.source.name(source), self.target.name(target)
        existing = await self.target.stat(target, follow=False)
        decision = decide(attr, existing, self.options)
        report, equal = self.outcome.report, (names[0], attr.bytes)
        if decision is Decision.NEWER:
            report.newer.append(equal)
            return
        result: FileResult | None = None
        if decision is Decision.REFUSE or (
            decision is Decision.COMPARE and not await self._is_equal(source, target)
        ):
            raise refusal(existing, names[1])
        if decision in (Decision.MOVE, Decision.DIFFER):
            self.outcome.note_far(names[0], attr)
            result = await self._move(source, target, attr, decision)
        other_flags = self.options.batch_flags & ~lib.CAREFUL_BATCH_TIME  # the time is set already
        self._note(target, bool(other_flags) or result is None)
        if result is None:
            report.equal.append(equal)
        else:
            self.outcome.done(result)
        if self.options.batch_flags and not self.options.dry_run:
            await self._attributes(source, target, attr)

    async def _is_equal(self, source: str, target: str) -> bool:
        return (await self.direction.compare(source, target, self.options.block_bytes))[1]

    async def _move(
        self, source: str, target: str, attr: Attr, decision: Decision
    ) -> FileResult | None:
        """Returns the moved file, or with dry_run the file to move; None if it is equal."""
        names, progress = (
            (self.source.name(source), self.target.name(target)),
            self.outcome.progress,
        )
        if not self.options.dry_run:
            try:
                return await self.direction.copy(source, target, self.options, progress)
            except CarefulError as error:
                # The name was taken meanwhile.
                if error.errno != errno.EEXIST or not await self._is_equal(source, target):
                    raise
            except BaseException as error:  # a file of several blocks has reported this itself
                if attr.bytes <= self.options.block_bytes:
                    report_nothing_kept(names[1], self.options.block_bytes, error, progress)
                raise
            return None
        matched_bytes, is_equal = 0, False
        if decision is Decision.DIFFER:
            matched_bytes, is_equal = await self.direction.compare(
                source, target, self.options.block_bytes
            )
        result = FileResult(*names, attr.bytes, None, 0, matched_bytes=matched_bytes)
        return None if is_equal else result

    @contextmanager
    def _trees(self, source: str, target: str) -> Iterator[tuple[Tree, Tree, tuple[str, str]]]:
        """Yields the directories of a file at both ends, and its names there."""
        (folder, name), (target_folder, target_name) = map(posixpath.split, (source, target))
        with (
            closing(self.source.tree(folder or ".")) as source_tree,
            closing(self.target.tree(target_folder or ".")) as target_tree,
        ):
            yield source_tree, target_tree, (name, target_name)

    async def _attributes(self, source: str, target: str, attr: Attr) -> None:
        with self._trees(source, target) as (source_tree, target_tree, names):
            wanted, flags = [(*names, attr)], self.options.batch_flags
            await apply_attributes(source_tree, target_tree, wanted, flags, self.outcome)

    async def link(self, source: str, target: str) -> None:
        if self.options.dry_run:
            self.outcome.report.links += 1
            return
        with self._trees(source, target) as trees:
            await self._link(*trees)
            self._note(target, True)

    async def _link(self, source: Tree, target: Tree, names: tuple[str, str]) -> None:
        flags = self.options.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
        flags |= lib.CAREFUL_BATCH_REPLACE if self.options.replace else 0
        read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(names[0]))
        [answer] = await run_items(source, [read], flags)
        if not answer.status and answer.op == lib.CAREFUL_ITEM_SYMLINK:
            item = answer._replace(name=os.fsencode(names[1]))
            [answer] = await run_items(target, [item], flags)
            if answer.status == errno.EEXIST:
                read = Item(lib.CAREFUL_ITEM_READ, item.name)
                [present] = await run_items(target, [read], flags)
                if (present.status, present.op, present.text) == (0, item.op, item.text):
                    self.outcome.report.equal.append((source.name(names[0]), 0))
                    return
        if answer.status:
            self.outcome.fail_errno(source.name(names[0]), answer.status, target.name(names[1]))
        else:
            self.outcome.report.links += 1
