"""Copies one tree in either direction.

Owns the order: directories before their contents, small files in batches next to large files, then
links, deletions, and attributes last, children before their directories. One item's failure does
not end the others.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from careful._abi import lib
from careful.errors import CarefulError, Text
from careful.transfer.file.holes import GRAIN, has_holes
from careful.transfer.file.journal import is_partial
from careful.transfer.options import FileResult
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import Item
from careful.transfer.protocol.block import Attr, Entry, parent
from careful.transfer.tasks import all_of
from careful.transfer.tree.attributes import apply_attributes, parts, sync_file_system, usual_modes
from careful.transfer.tree.clashes import extra, in_the_way, look_alike, taken_for_one
from careful.transfer.tree.digests import equal_small
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.existing import Fate, fate_of, refused
from careful.transfer.tree.guards import mount_points, why_stopped
from careful.transfer.tree.links import HardLinks, is_made, link_items
from careful.transfer.tree.outcome import Outcome
from careful.transfer.tree.scan import Apart
from careful.transfer.tree.small_bulk import Part
from careful.transfer.tree.small_files import SmallFiles


class TreeTransfer:
    """A tree on its way.

    Args:
        way: source and target of the transfer.
        paths: of the two directories; both exist, except with options.dry_run.
        top: attributes of the source, and whether the target is new.
        apart: the source's entries.
        existing: the target's entries.
        sink: receives every outcome.
    """

    def __init__(
        self,
        way: Direction,
        paths: tuple[str, str],
        top: tuple[Attr, bool],
        apart: Apart,
        existing: Iterable[Entry],
        sink: Outcome,
    ) -> None:
        self.way, self.paths = way, paths
        self.source, self.target = way.source.tree(paths[0]), way.target.tree(paths[1])
        self.sink, self.options = sink, sink.options
        self.existing = {entry.name: entry for entry in existing}
        self.entries, self.plain = apart
        self.top = Entry(".", top[0], "", 0)
        self.directories: list[Entry] = []
        self.symlinks: list[Entry] = []
        self.hard_links = HardLinks(self.existing, self.options)
        self.small: list[Entry] = []
        self.large: list[Entry] = []
        self.made: set[str] = {"."} if top[1] else set()
        self.in_place: dict[str, Attr] = {}
        self.equal: set[str] = set()
        self.batch_flags = self.options.batch_flags
        if self.options.replace:
            self.batch_flags |= lib.CAREFUL_BATCH_REPLACE
        if self.options.sync:
            self.batch_flags |= lib.CAREFUL_BATCH_SYNC
        if not self.options.digest:
            self.batch_flags |= lib.CAREFUL_BATCH_NODIGEST
        self.doubtful: list[tuple[Entry, Fate]] = []
        self.differing: set[str] = set()
        #: Names that appeared at the target during the transfer.
        self.late: list[Entry] = []
        self.small_files = SmallFiles(self.source, self.target, self.batch_flags, sink, self.late)

    def close(self) -> None:
        self.source.close()
        self.target.close()

    async def _common(self, name: str) -> tuple[int, bool]:
        """Returns how much of a file is equal at both ends, and whether the files are equal."""
        way, (source, target) = self.way, self.paths
        ends = way.source.join(source, name), way.target.join(target, name)
        return await way.common(*ends, self.options.block_bytes)

    def plan(self) -> None:
        """Sorts the entries by what has to be done with them."""
        for entry in self.entries:
            attr = entry.attr
            if is_partial(entry.name) and not attr.is_dir and not entry.error:
                self.sink.skip_partial(self.source.name(entry.name))
                continue
            if entry.error:
                self.sink.fail_errno(self.source.name(entry.name), entry.error)
            if attr.is_dir:
                self.directories.append(entry)
                if entry.name not in self.existing:
                    self.sink.note_far(self.source.name(entry.name), attr)
            elif entry.error:
                continue
            elif attr.is_link and self.options.links:
                if self._is_barred(entry):
                    self._refuse(entry)
                elif not self._link_is_equal(entry):
                    self.symlinks.append(entry)
            elif not attr.is_file:
                self.sink.skip(self.source.name(entry.name), attr.mode)
            elif not (self.options.hard_links and self.hard_links.take(entry)):
                self._plan_file(entry)
        for part in self.plain:
            self.sink.progress.expect(part.files, part.bytes)

    def _is_barred(self, entry: Entry) -> bool:
        """Reports whether the target's entry is never replaced, whatever the options."""
        there = self.existing.get(entry.name)
        return there is not None and there.attr.is_special

    def _link_is_equal(self, entry: Entry) -> bool:
        there = self.existing.get(entry.name)
        return there is not None and there.attr.is_link and there.target == entry.target

    def _plan_file(self, entry: Entry) -> None:
        what = fate_of(entry, self.existing, self.options)
        if what is Fate.MOVE:
            self._plan_move(entry)
        elif what is Fate.EQUAL:
            self._is_there(entry)
        elif what is Fate.NEWER:
            self.sink.report.newer.append((self.source.name(entry.name), entry.attr.bytes))
        elif what is Fate.REFUSE:
            self._refuse(entry)
        else:
            self.doubtful.append((entry, what))

    def _refuse(self, entry: Entry) -> None:
        self.sink.progress.expect(1, 0)
        there = self.existing.get(entry.name)
        error = refused(there.attr if there else None, self.target.name(entry.name))
        self.sink.fail(self.source.name(entry.name), error)
        self.sink.progress.finished(self.source.name(entry.name))

    def _is_there(self, entry: Entry) -> None:
        self.sink.report.equal.append((self.source.name(entry.name), entry.attr.bytes))
        self.in_place[entry.name] = entry.attr
        self.equal.add(entry.name)

    async def _settle(self, doubtful: list[tuple[Entry, Fate]]) -> None:
        """Compares files: equal ones are done, others are refused or moved in part."""
        files = [entry for entry, _ in doubtful]
        are_equal = await equal_small(self.source, self.target, files)
        todo = iter(doubtful)

        async def worker() -> None:
            for entry, what in todo:
                is_equal = are_equal.get(entry.name)
                if what is Fate.COMPARE and is_equal is None:
                    is_equal = await self._is_equal(entry)
                if is_equal:
                    self._is_there(entry)
                elif what is Fate.DIFFER:
                    if is_equal is False and entry.attr.bytes <= self.options.block_bytes:
                        self.differing.add(entry.name)  # its only block differs
                    self._plan_move(entry)
                elif is_equal is False:
                    self._refuse(entry)

        width = min(self.options.files_in_flight, len(doubtful))
        await all_of(*(worker() for _ in range(width)))

    async def _is_equal(self, entry: Entry) -> bool | None:
        """Reports whether a file is equal at both ends; None after a failure, which is noted."""
        try:
            return (await self._common(entry.name))[1]
        except CarefulError as error:
            self.sink.fail(self.source.name(entry.name), error)
            return None

    def _is_compared(self, entry: Entry) -> bool:
        """Reports whether a file's blocks are compared before they move."""
        there = self.existing.get(entry.name)
        if not self.options.checksum or entry.name in self.differing:
            return False
        return there is not None and there.attr.is_file

    def _plan_move(self, entry: Entry) -> None:
        self.sink.note_far(self.source.name(entry.name), entry.attr)
        self.sink.progress.expect(1, entry.attr.bytes)
        by_itself = self._is_compared(entry)
        by_itself = by_itself or has_holes(entry.attr)
        by_itself = by_itself or (self.options.sparse and entry.attr.bytes >= GRAIN)
        by_itself = by_itself or self.options.blake3
        small = entry.attr.bytes <= batch.SMALL_BYTES and not by_itself
        (self.small if small else self.large).append(entry)

    async def run(self) -> None:
        """Carries out the transfer."""
        self.plan()
        await self._settle(self.doubtful)
        self.hard_links.drop_made(self.equal)
        if self.options.delete or self.options.mounts is not None:
            await self._check_deletion()
        if self.options.dry_run:
            await self._rehearse()
            return
        clashing = self._clashing()
        await self._remove(clashing)
        for one in clashing:
            del self.existing[one.name]
        barred = await self._make_directories()

        def left(entries: list[Entry]) -> list[Entry]:
            return [one for one in entries if parent(one.name) not in barred]

        if barred:
            named = [entry for part in self.plain for entry in part.entries()]
            self.small += named
            self.entries, self.plain = [*self.entries, *named], ()
        self.small, self.large = left(self.small), left(self.large)
        self.hard_links.drop_below(barred)
        await self._move_files(self.plain)
        while await self._next_names():
            await self._move_files(())
        await self._make_links(left(self.symlinks))
        await self._look_alikes()
        if self.options.delete:
            await self._delete()
        await self._clear()
        await self._attributes()

    async def _move_files(self, plain: Sequence[Part]) -> None:
        await all_of(
            self.small_files.sifted(plain),
            self.small_files.listed(self.small),
            self._large_files(self.large),
        )
        await self._large_files(self.small_files.alone)
        await self._settle([(entry, Fate.COMPARE) for entry in self.late])
        self.small_files.alone.clear()
        self.late.clear()

    async def _next_names(self) -> bool:
        """Plans the next names of files whose first name failed; reports whether there are any."""
        firsts = self.hard_links.next_names(self.in_place, self.small_files.linked)
        self.small, self.large, self.doubtful = [], [], []
        for entry in firsts:
            self._plan_file(entry)
        await self._settle(self.doubtful)
        return bool(firsts)

    async def _clear(self) -> None:
        there = [one.name for one in self.existing.values() if not one.attr.is_dir]
        left = [name for name in there if is_partial(name)]
        if left:
            whole = "" if self.sink.report.failures else self.way.source.name(self.paths[0])
            await self.way.target.clear(self.paths[1], left, whole)

    async def _rehearse(self) -> None:
        await self._rehearse_files()
        while await self._next_names():
            await self._rehearse_files()
        self.sink.report.directories += sum(
            one.name not in self.existing for one in self.directories
        )
        self.sink.report.links += len(self.symlinks) + len(self.hard_links.pairs)
        gone = self._clashing()
        gone += [one for one in self._extra() if one not in gone] if self.options.delete else []
        self.sink.report.deleted += [self.target.name(one.name) for one in gone]

    async def _rehearse_files(self) -> None:
        for entry in self.small + self.large:
            self.in_place[entry.name] = entry.attr
            if self._is_compared(entry):
                await self._rehearse_comparison(entry)
            else:
                names = self.source.name(entry.name), self.target.name(entry.name)
                self.sink.done(FileResult(*names, entry.attr.bytes, None, 0))

    async def _rehearse_comparison(self, entry: Entry) -> None:
        names, nbytes = (
            (self.source.name(entry.name), self.target.name(entry.name)),
            entry.attr.bytes,
        )
        try:
            common, is_same = await self._common(entry.name)
        except CarefulError as error:
            self.sink.fail(names[0], error)
            return
        if is_same:
            self.sink.report.equal.append((names[0], nbytes))
        else:
            self.sink.done(FileResult(*names, nbytes, None, 0, matched_bytes=common))

    async def _run(self, items: list[Item], flags: int = 0) -> list[Item]:
        answers: list[Item] = []
        for part in parts(items):
            answers += await batch.asked(self.target, part, flags)
        return answers

    def _failed_there(self, name: str, code: int) -> None:
        self.sink.fail_errno(self.source.name(name), code, self.target.name(name))

    def _clashing(self) -> list[Entry]:
        """Returns the names that must go, and may, before the source's entries get theirs."""
        return in_the_way(self.entries, self.existing, self.options)

    async def _make_directories(self) -> set[str]:
        """Makes the directories; returns the names that failed and everything below them."""
        barred: set[str] = set()
        by_depth: dict[int, list[Entry]] = {}
        for entry in self.directories:
            by_depth.setdefault(entry.name.count("/"), []).append(entry)
        for _, level in sorted(by_depth.items()):
            wanted = []
            for one in level:
                if parent(one.name) in barred:
                    barred.add(one.name)
                else:
                    wanted.append(one)
            items = [
                Item(lib.CAREFUL_ITEM_DIRECTORY, os.fsencode(one.name), new_mode(one.attr))
                for one in wanted
            ]
            for one, answer in zip(wanted, await self._run(items), strict=True):
                if answer.status:
                    barred.add(one.name)
                    self._failed_there(one.name, answer.status)
                elif answer.op == lib.CAREFUL_ITEM_DIRECTORY:
                    self.made.add(one.name)
        self.sink.report.directories += len(self.made)
        self.directories = [one for one in self.directories if one.name not in barred]
        return barred

    async def _large_files(self, entries: list[Entry]) -> None:
        todo = iter(entries)

        async def worker() -> None:
            for entry in todo:
                name = self.source.name(entry.name)
                try:
                    result = await self._move(entry.name)
                except CarefulError as error:
                    if error.errno == errno.EEXIST and not self.options.replace:
                        self.late.append(entry)
                    else:
                        self.sink.fail(name, error)
                else:
                    self.in_place[entry.name] = entry.attr
                    if result is None:
                        self.sink.report.equal.append((name, entry.attr.bytes))
                    else:
                        self.sink.done(result)
                self.sink.progress.finished(name)

        width = min(self.options.files_in_flight, len(entries))
        await all_of(*(worker() for _ in range(width)))

    async def _move(self, name: str) -> FileResult | None:
        """Moves a single file; returns None if it was equal."""
        way, (source, target) = self.way, self.paths
        ends = way.source.join(source, name), way.target.join(target, name)
        return await way.copy(*ends, self.options, self.sink.progress)

    async def _make_links(self, symlinks: list[Entry]) -> None:
        made = link_items(symlinks, self.hard_links.pairs)
        flags = self.batch_flags & ~lib.CAREFUL_BATCH_XATTRS
        answers = await self._run([item for _, item in made], flags)
        for (name, item), answer in zip(made, answers, strict=True):
            if not answer.status:
                self.sink.report.links += 1
            elif answer.status != errno.EEXIST or not await is_made(self.target, item):
                self._failed_there(name, answer.status)

    async def _look_alikes(self) -> None:
        """Reports files that were replaced by files whose names differ only in case."""
        if not self.options.replace:
            return
        plain = (entry for part in self.plain for entry in part.entries())
        groups = look_alike([*self.entries, *plain])
        for one, other in await taken_for_one(self.target, groups):
            text = f"has the same name there as {self.target.name(other)}; one replaced the other"
            name = self.target.name(one)
            self.sink.fail(self.source.name(one), CarefulError(errno.EEXIST, text, name))

    def _extra(self) -> list[Entry]:
        return extra(self.entries, self.existing, self.options)

    async def _check_deletion(self) -> None:
        """Prevents all deletions, and fails, if a guard objects. Remembers the mount points."""
        way, (source, target) = self.way, self.paths
        above = None
        if not way.fetch or source not in (".", ""):  # a peer hides what is above its export
            with suppress(CarefulError):  # a symlink may lead to the top of an export
                above = await way.source.stat(way.source.join(source, ".."), follow=True)
        now = mount_points(above, self.top.attr, self.entries)
        local, remote = (target, source) if way.fetch else (source, target)
        # Resolve aliases of the host and the directory.
        ends = f"{way.remote.place}:{posixpath.normpath(remote)}", os.path.realpath(local)
        trees = ends if way.fetch else ends[::-1]
        keeper = self.options.mounts
        before = keeper.read(trees) if keeper is not None else set()
        text: Text = ""
        if self.options.delete:
            gone = {one.name: one for one in [*self._clashing(), *self._extra()]}
            text = why_stopped([*gone.values()], before - now, self.options.max_delete)
        else:  # keep a disk known that is not mounted now
            now |= before
        if text:
            self.options = replace(self.options, delete=False)
            name = way.source.name(source)
            self.sink.fail(name, CarefulError(errno.ECANCELED, text, name))
        elif keeper is not None and now != before and not self.options.dry_run:
            keeper.write(trees, now)

    async def _delete(self) -> None:
        if any(entry.error for entry in self.entries if not entry.attr.is_dir):
            self.sink.progress.note(
                "nothing is deleted, because the source could not be read completely"
            )
            return
        await self._remove(self._extra())

    async def _remove(self, extra: Sequence[Entry]) -> None:
        by_depth = [Item(lib.CAREFUL_ITEM_REMOVE, os.fsencode(one.name)) for one in extra]
        for one, answer in zip(extra, await self._run(by_depth), strict=True):
            name = self.target.name(one.name)
            if not answer.status:
                self.sink.report.deleted.append(name)
            elif answer.status != errno.ENOTEMPTY or not self.options.filters.patterns:
                self.sink.fail_errno(name, answer.status)

    async def _attributes(self) -> None:
        """Sets the attributes of large files and directories, the deepest first."""
        await self._attributes_of(self.in_place, [*reversed(self.directories), self.top])
        await self._sync()

    async def _sync(self) -> None:
        """Makes everything durable; other file systems may be mounted below the target."""
        if self.options.fsync == "none":
            return
        folders: dict[int, str] = {}  # one folder per file system
        for one in self.directories:
            if one.name not in self.made and (known := self.existing.get(one.name)):
                folders.setdefault(known.attr.device, one.name)
        if folders and (top := await self.way.target.stat(self.paths[1], follow=True)):
            folders.pop(top.device, None)
        for folder in (".", *folders.values()):
            await sync_file_system(self.target, self.sink, folder)

    async def _attributes_of(self, files: dict[str, Attr], directories: list[Entry]) -> None:
        plain = self.options.batch_flags
        if plain:
            wanted = [(name, name, attr) for name, attr in files.items()]
            wanted += [(one.name, one.name, one.attr) for one in directories]
            await apply_attributes(self.source, self.target, wanted, plain, self.sink)
        if not plain & lib.CAREFUL_BATCH_MODE:
            fresh = [one for one in directories if one.name in self.made]
            await usual_modes(self.target, fresh, self.way.target.mask)


def new_mode(attr: Attr) -> bytes:
    """Returns attributes for a new directory: its owner can write until the end."""
    return batch.packed_attr(attr._replace(mode=attr.mode | 0o700))
