"""Copies one tree in either direction.

The order: directories before their contents, small files in batches next to large files, then
links, deletions, and attributes last, children before their directories. One item's failure does
not end the others.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.file.holes import GRAIN, has_holes
from careful.transfer.file.journal import is_partial
from careful.transfer.options import FileResult
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item
from careful.transfer.protocol.entries import Attr, Entry, parent
from careful.transfer.tasks import all_of, each
from careful.transfer.tree.attributes import (
    apply_attributes,
    batches,
    set_usual_modes,
    sync_file_system,
)
from careful.transfer.tree.clashes import extra, merged_names, removed_first, same_name_groups
from careful.transfer.tree.digests import equal_small
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.existing import Decision, decide_entry, refusal
from careful.transfer.tree.guards import objection
from careful.transfer.tree.links import HardLinks, is_made, link_items
from careful.transfer.tree.outcome import Outcome
from careful.transfer.tree.scan import SplitListing
from careful.transfer.tree.small_bulk import SmallBatch
from careful.transfer.tree.small_files import SmallFiles


class TreeTransfer:
    """The transfer of one tree.

    Args:
        direction: source and target of the transfer.
        paths: of the two directories; both exist, except with options.dry_run.
        top: attributes of the source, and whether the target is new.
        split: the source's entries.
        existing: the target's entries.
        outcome: receives the outcome of each file.
    """

    def __init__(
        self,
        direction: Direction,
        paths: tuple[str, str],
        top: tuple[Attr, bool],
        split: SplitListing,
        existing: Iterable[Entry],
        outcome: Outcome,
    ) -> None:
        self.direction, self.paths = direction, paths
        self.source, self.target = direction.source.tree(paths[0]), direction.target.tree(paths[1])
        self.outcome, self.options = outcome, outcome.options
        self.existing = {entry.name: entry for entry in existing}
        self.entries, self.small_batches = split
        self.top = Entry(".", top[0], "", 0)
        self.directories: list[Entry] = []
        self.symlinks: list[Entry] = []
        self.hard_links = HardLinks(self.existing, self.options)
        self.small: list[Entry] = []
        self.large: list[Entry] = []
        self.new_directories: set[str] = {"."} if top[1] else set()
        self.moved: dict[str, Attr] = {}
        self.equal: set[str] = set()
        self.batch_flags = self.options.batch_flags
        if self.options.replace:
            self.batch_flags |= lib.CAREFUL_BATCH_REPLACE
        if self.options.sync:
            self.batch_flags |= lib.CAREFUL_BATCH_SYNC
        if not self.options.digest:
            self.batch_flags |= lib.CAREFUL_BATCH_NODIGEST
        self.undecided: list[tuple[Entry, Decision]] = []
        self.differing: set[str] = set()
        #: Names that appeared at the target during the transfer.
        self.appeared: list[Entry] = []
        self.small_files = SmallFiles(
            self.source, self.target, self.batch_flags, outcome, self.appeared
        )

    def close(self) -> None:
        self.source.close()
        self.target.close()

    def _ends(self, name: str) -> tuple[str, str]:
        """Returns the paths of a file at the source and at the target."""
        direction, (source, target) = self.direction, self.paths
        return direction.source.join(source, name), direction.target.join(target, name)

    async def _common(self, name: str) -> tuple[int, bool]:
        """Returns how much of a file is equal at both ends, and whether the files are equal."""
        return await self.direction.compare(*self._ends(name), self.options.block_bytes)

    def plan(self) -> None:
        """Sorts the entries by what has to be done with them."""
        for entry in self.entries:
            attr = entry.attr
            if is_partial(entry.name) and not attr.is_dir and not entry.error:
                self.outcome.skip_partial(self.source.name(entry.name))
                continue
            if entry.error:
                self.outcome.fail_errno(self.source.name(entry.name), entry.error)
            if attr.is_dir:
                self.directories.append(entry)
                if entry.name not in self.existing:
                    self.outcome.note_far(self.source.name(entry.name), attr)
            elif entry.error:
                continue
            elif attr.is_link and self.options.links:
                existing = self.existing.get(entry.name)
                if existing is not None and existing.attr.is_special:  # never replaced
                    self._refuse(entry)
                elif existing is None or existing.target != entry.target:
                    self.symlinks.append(entry)
            elif not attr.is_file:
                self.outcome.skip(self.source.name(entry.name), attr.mode)
            elif not (self.options.hard_links and self.hard_links.add(entry)):
                self._plan_file(entry)
        for small_batch in self.small_batches:
            self.outcome.progress.expect(small_batch.file_count, small_batch.bytes)

    def _plan_file(self, entry: Entry) -> None:
        decision = decide_entry(entry, self.existing, self.options)
        if decision is Decision.MOVE:
            self._plan_move(entry)
        elif decision is Decision.EQUAL:
            self._note_equal(entry)
        elif decision is Decision.NEWER:
            self.outcome.report.newer.append((self.source.name(entry.name), entry.attr.bytes))
        elif decision is Decision.REFUSE:
            self._refuse(entry)
        else:
            self.undecided.append((entry, decision))

    def _refuse(self, entry: Entry) -> None:
        self.outcome.progress.expect(1, 0)
        existing = self.existing.get(entry.name)
        error = refusal(existing.attr if existing else None, self.target.name(entry.name))
        self.outcome.fail(self.source.name(entry.name), error)
        self.outcome.progress.finished(self.source.name(entry.name))

    def _note_equal(self, entry: Entry) -> None:
        self.outcome.report.equal.append((self.source.name(entry.name), entry.attr.bytes))
        self.moved[entry.name] = entry.attr
        self.equal.add(entry.name)

    async def _compare(self, undecided: list[tuple[Entry, Decision]]) -> None:
        """Compares files: equal ones are done, others are refused or moved in part."""
        files = [entry for entry, _ in undecided]
        are_equal = await equal_small(self.source, self.target, files)

        async def compare(one: tuple[Entry, Decision]) -> None:
            entry, decision = one
            is_equal = are_equal.get(entry.name)
            if decision is Decision.COMPARE and is_equal is None:
                is_equal = await self._is_equal(entry)
            if is_equal:
                self._note_equal(entry)
            elif decision is Decision.DIFFER:
                if is_equal is False and entry.attr.bytes <= self.options.block_bytes:
                    self.differing.add(entry.name)  # its only block differs
                self._plan_move(entry)
            elif is_equal is False:
                self._refuse(entry)

        await each(undecided, self.options.files_in_flight, compare)

    async def _is_equal(self, entry: Entry) -> bool | None:
        """Reports whether a file is equal at both ends; None: a failure, which was noted."""
        try:
            return (await self._common(entry.name))[1]
        except CarefulError as error:
            self.outcome.fail(self.source.name(entry.name), error)
            return None

    def _is_compared(self, entry: Entry) -> bool:
        """Reports whether a file's blocks are compared before they move."""
        existing = self.existing.get(entry.name)
        if not self.options.checksum or entry.name in self.differing:
            return False
        return existing is not None and existing.attr.is_file

    def _plan_move(self, entry: Entry) -> None:
        self.outcome.note_far(self.source.name(entry.name), entry.attr)
        self.outcome.progress.expect(1, entry.attr.bytes)
        is_single = self._is_compared(entry) or has_holes(entry.attr) or self.options.blake3
        is_single = is_single or (self.options.sparse and entry.attr.bytes >= GRAIN)
        small = entry.attr.bytes <= batch.SMALL_BYTES and not is_single
        (self.small if small else self.large).append(entry)

    async def run(self) -> None:
        """Carries out the transfer."""
        self.plan()
        await self._compare(self.undecided)
        self.hard_links.drop_linked(self.equal)
        if self.options.delete or self.options.mounts is not None:
            await self._check_deletion()
        if self.options.dry_run:
            await self._rehearse()
            return
        clashing = self._clashing()
        await self._remove(clashing)
        for one in clashing:
            del self.existing[one.name]
        unmade = await self._make_directories()

        def reachable(entries: list[Entry]) -> list[Entry]:
            return [one for one in entries if parent(one.name) not in unmade]

        if unmade:
            named = [entry for small_batch in self.small_batches for entry in small_batch.entries()]
            self.small += named
            self.entries, self.small_batches = [*self.entries, *named], ()
        self.small, self.large = reachable(self.small), reachable(self.large)
        pairs = self.hard_links.pairs
        self.hard_links.pairs = [one for one in pairs if parent(one[0].name) not in unmade]
        await self._move_files(self.small_batches)
        while await self._next_names():
            await self._move_files(())
        await self._make_links(reachable(self.symlinks))
        await self._report_merged()
        if self.options.delete:
            await self._delete()
        await self._clear_partials()
        await self._attributes()
        await self._sync()

    async def _move_files(self, small_batches: Sequence[SmallBatch]) -> None:
        width = self.options.files_in_flight
        await all_of(
            self.small_files.move_batches(small_batches),
            self.small_files.move_entries(self.small),
            each(self.large, width, self._large_file),
        )
        await each(self.small_files.grown, width, self._large_file)
        await self._compare([(entry, Decision.COMPARE) for entry in self.appeared])
        self.small_files.grown.clear()
        self.appeared.clear()

    async def _next_names(self) -> bool:
        """Plans the next names of files whose first name failed; reports whether there are any."""
        firsts = self.hard_links.next_names(self.moved, self.small_files.linked)
        self.small, self.large, self.undecided = [], [], []
        for entry in firsts:
            self._plan_file(entry)
        await self._compare(self.undecided)
        return bool(firsts)

    async def _clear_partials(self) -> None:
        existing = [one.name for one in self.existing.values() if not one.attr.is_dir]
        partials = [name for name in existing if is_partial(name)]
        if partials:
            has_failed = bool(self.outcome.report.failures)
            whole = "" if has_failed else self.direction.source.name(self.paths[0])
            await self.direction.target.clear(self.paths[1], partials, whole)

    async def _rehearse(self) -> None:
        await self._rehearse_files()
        while await self._next_names():
            await self._rehearse_files()
        report = self.outcome.report
        report.directories += sum(one.name not in self.existing for one in self.directories)
        report.links += len(self.symlinks) + len(self.hard_links.pairs)
        removed = self._clashing()
        if self.options.delete:
            removed += [one for one in self._extra() if one not in removed]
        report.deleted += [self.target.name(one.name) for one in removed]

    async def _rehearse_files(self) -> None:
        for entry in self.small + self.large:
            self.moved[entry.name] = entry.attr
            if self._is_compared(entry):
                await self._rehearse_comparison(entry)
            else:
                names = self.source.name(entry.name), self.target.name(entry.name)
                self.outcome.done(FileResult(*names, entry.attr.bytes, None, 0))

    async def _rehearse_comparison(self, entry: Entry) -> None:
        names = self.source.name(entry.name), self.target.name(entry.name)
        nbytes = entry.attr.bytes
        try:
            common, is_equal = await self._common(entry.name)
        except CarefulError as error:
            self.outcome.fail(names[0], error)
            return
        if is_equal:
            self.outcome.report.equal.append((names[0], nbytes))
        else:
            self.outcome.done(FileResult(*names, nbytes, None, 0, matched_bytes=common))

    async def _run(self, items: list[Item], flags: int = 0) -> list[Item]:
        answers: list[Item] = []
        for small_batch in batches(items):
            answers += await batch.run_items(self.target, small_batch, flags)
        return answers

    def _fail_at_target(self, name: str, code: int) -> None:
        self.outcome.fail_errno(self.source.name(name), code, self.target.name(name))

    def _clashing(self) -> list[Entry]:
        """Returns the target's names that must go before the source's entries get theirs."""
        return removed_first(self.entries, self.existing, self.options)

    async def _make_directories(self) -> set[str]:
        """Makes the directories; returns the names that failed and everything below them."""
        unmade: set[str] = set()
        by_depth: dict[int, list[Entry]] = {}
        for entry in self.directories:
            by_depth.setdefault(entry.name.count("/"), []).append(entry)
        for _, level in sorted(by_depth.items()):
            wanted = []
            for one in level:
                if parent(one.name) in unmade:
                    unmade.add(one.name)
                else:
                    wanted.append(one)
            items = []
            for one in wanted:  # the owner can write to it until the end
                mode = batch.packed_attr(one.attr._replace(mode=one.attr.mode | 0o700))
                items.append(Item(lib.CAREFUL_ITEM_DIRECTORY, os.fsencode(one.name), mode))
            for one, answer in zip(wanted, await self._run(items), strict=True):
                if answer.status:
                    unmade.add(one.name)
                    self._fail_at_target(one.name, answer.status)
                elif answer.op == lib.CAREFUL_ITEM_DIRECTORY:
                    self.new_directories.add(one.name)
        self.outcome.report.directories += len(self.new_directories)
        self.directories = [one for one in self.directories if one.name not in unmade]
        return unmade

    async def _large_file(self, entry: Entry) -> None:
        name = self.source.name(entry.name)
        try:
            ends, progress = self._ends(entry.name), self.outcome.progress
            result = await self.direction.copy(*ends, self.options, progress)
        except CarefulError as error:
            if error.errno == errno.EEXIST and not self.options.replace:
                self.appeared.append(entry)
            else:
                self.outcome.fail(name, error)
        else:
            self.moved[entry.name] = entry.attr
            if result is None:
                self.outcome.report.equal.append((name, entry.attr.bytes))
            else:
                self.outcome.done(result)
        self.outcome.progress.finished(name)

    async def _make_links(self, symlinks: list[Entry]) -> None:
        links = link_items(symlinks, self.hard_links.pairs)
        flags = self.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
        answers = await self._run([item for _, item in links], flags)
        for (name, item), answer in zip(links, answers, strict=True):
            if not answer.status:
                self.outcome.report.links += 1
            elif answer.status != errno.EEXIST or not await is_made(self.target, item):
                self._fail_at_target(name, answer.status)

    async def _report_merged(self) -> None:
        """Reports files that were replaced by files whose names differ only in case."""
        if not self.options.replace:
            return
        batch_entries = (
            entry for small_batch in self.small_batches for entry in small_batch.entries()
        )
        groups = same_name_groups([*self.entries, *batch_entries])
        for one, other in await merged_names(self.target, groups):
            text = f"has the same name there as {self.target.name(other)}; one replaced the other"
            name = self.target.name(one)
            self.outcome.fail(self.source.name(one), CarefulError(errno.EEXIST, text, name))

    def _extra(self) -> list[Entry]:
        return extra(self.entries, self.existing, self.options)

    async def _check_deletion(self) -> None:
        """Prevents all deletions and notes a failure if a guard objects."""
        names = [*self._clashing(), *self._extra()] if self.options.delete else []
        removed = {one.name: one for one in names}
        source = self.top.attr, self.entries
        text = await objection(
            self.direction, self.paths, source, [*removed.values()], self.options
        )
        if text:
            self.options = replace(self.options, delete=False)
            name = self.direction.source.name(self.paths[0])
            self.outcome.fail(name, CarefulError(errno.ECANCELED, text, name))

    async def _delete(self) -> None:
        if any(entry.error for entry in self.entries if not entry.attr.is_dir):
            text = "nothing is deleted, because the source could not be read completely"
            self.outcome.progress.note(text)
            return
        await self._remove(self._extra())

    async def _remove(self, entries: Sequence[Entry]) -> None:
        items = [Item(lib.CAREFUL_ITEM_REMOVE, os.fsencode(one.name)) for one in entries]
        for one, answer in zip(entries, await self._run(items), strict=True):
            name = self.target.name(one.name)
            if not answer.status:
                self.outcome.report.deleted.append(name)
            elif answer.status != errno.ENOTEMPTY or not self.options.filters.patterns:
                self.outcome.fail_errno(name, answer.status)

    async def _sync(self) -> None:
        """Makes everything durable; other file systems may be mounted below the target."""
        if self.options.fsync == "none":
            return
        folders: dict[int, str] = {}  # one folder per file system
        for one in self.directories:
            if one.name not in self.new_directories and (known := self.existing.get(one.name)):
                folders.setdefault(known.attr.device, one.name)
        if folders and (tree_top := await self.direction.target.stat(self.paths[1], follow=True)):
            folders.pop(tree_top.device, None)
        for folder in (".", *folders.values()):
            await sync_file_system(self.target, self.outcome, folder)

    async def _attributes(self) -> None:
        """Sets the attributes of large files and directories, the deepest first."""
        directories = [*reversed(self.directories), self.top]
        flags = self.options.batch_flags
        if flags:
            wanted = [(name, name, attr) for name, attr in self.moved.items()]
            wanted += [(one.name, one.name, one.attr) for one in directories]
            await apply_attributes(self.source, self.target, wanted, flags, self.outcome)
        if not flags & lib.CAREFUL_BATCH_MODE:
            fresh = [one for one in directories if one.name in self.new_directories]
            await set_usual_modes(self.target, fresh, self.direction.target.mask)
