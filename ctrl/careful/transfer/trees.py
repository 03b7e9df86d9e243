"""What `get` and `put` are asked for: several sources, files and trees.

Owns names: where a source goes. How a tree gets there is tree.py's; without
options.links symlinks are skipped by name (rsync's habit without -l), special files always.
"""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from careful._abi import lib
from careful.errors import CarefulError, from_os
from careful.transfer.attributes import apply_attributes, sync_file_system
from careful.transfer.batch import Item, LocalTree, RemoteTree, Tree, parse
from careful.transfer.block import Attr, BlockClient, Entry, Listing, relative
from careful.transfer.bulk import Part, sift
from careful.transfer.files import get_file, put_file
from careful.transfer.filters import Filters
from careful.transfer.local import current_umask, shown, sync_directory
from careful.transfer.mover import all_of, in_thread
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.report import Report
from careful.transfer.scan import (
    list_local,
    local_attr,
    not_there,
    scan_local,
    scan_remote,
    selected,
)
from careful.transfer.sink import TEXTS, Sink, kind_of
from careful.transfer.tree import TreeTransfer, is_equal

__all__ = ["Report", "get", "put"]

_Move = Callable[[], Awaitable[FileResult | None]]


class _Singles:
    """Files that were named one by one."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.jobs: list[Callable[[], Awaitable[None]]] = []

    def add(self, name: str, nbytes: int, move: _Move) -> None:
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
        move: _Move,
    ) -> FileResult | None:
        """Transfer a file, unless it is equal, and give it its attributes.

        Args:
            ends: the directories that it stands in, and is to.
            names: in these.
            entries: the source, and what stands at the target.
            move: moves the contents.
        """
        options, source = self.sink.options, entries[0]
        result: FileResult | None = None
        if not (options.update and not options.checksum and is_equal(*entries)):
            if options.dry_run:
                name = ends[0].name(names[0]), ends[1].name(names[1])
                if entries[1] is not None and not options.replace:
                    raise CarefulError(errno.EEXIST, TEXTS[errno.EEXIST], name[1])
                return FileResult(*name, source.attr.bytes, None, 0)
            result = await move()
        if options.batch_flags and not options.dry_run:
            wanted = [(*names, source.attr)]
            await apply_attributes(*ends, wanted, options.batch_flags, self.sink)
        return result


async def _link(ends: tuple[Tree, Tree], names: tuple[str, str], sink: Sink) -> None:
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


def _taken_apart(listing: Listing, options: Options) -> tuple[list[Entry], Sequence[Part]]:
    """The entries that are meant; apart, small files where nothing hangs on any single one."""
    if options.looks or options.blake3 or options.filters != Filters():
        return selected(listing.entries(), options.filters), ()
    sifted = sift(listing.data, options)
    return listing.entries(sifted.rest), sifted.parts


class _Get:
    def __init__(self, remote: BlockClient, sink: Sink) -> None:
        self.remote, self.sink, self.options = remote, sink, sink.options
        self.singles = _Singles(sink)
        self.folders: set[str] = set()

    async def add(self, source: str, target: str, into: bool, recursive: bool) -> None:
        """Fetch a tree, or plan a file."""
        name = self.remote.name(shown(source))
        attr = await self.remote.stat(source)
        base = "" if source == "." else posixpath.basename(source)
        local = os.path.join(target, base) if into and base else target
        if attr.is_dir and recursive and not attr.inode:  # the top of several exports
            await in_thread(partial(_make_directory, local, attr.mode))
            for entry in await self.remote.listing(source):
                await self.tree(entry.name, os.path.join(local, entry.name), entry.attr)
        elif attr.is_dir and recursive:
            await self.tree(source, local, attr)
        elif attr.is_dir:
            raise CarefulError(errno.EISDIR, "is a directory; -r fetches it", name)
        elif attr.is_link and self.options.links:
            ends = self._ends(source, local)
            await _link(ends, (posixpath.basename(source), os.path.basename(local)), self.sink)
            ends[1].close()
        elif attr.is_file or attr.is_link:
            self.singles.add(name, attr.bytes, partial(self._file, source, local, attr))
        else:  # asked for by name: not merely skipped
            text = f"is a {kind_of(attr.mode)}, no file"
            raise CarefulError(errno.EINVAL, text, name)

    def _ends(self, source: str, target: str) -> tuple[RemoteTree, LocalTree]:
        """The directories that two files stand in."""
        there = RemoteTree(self.remote, posixpath.dirname(source) or ".")
        return there, LocalTree(os.path.dirname(target))

    async def _file(self, source: str, target: str, attr: Attr) -> FileResult | None:
        there, here = self._ends(source, target)
        names = posixpath.basename(source), os.path.basename(target)
        try:
            old = Entry(names[1], local_attr(os.stat(target)), "", 0)
        except OSError:
            old = None
        move = partial(get_file, self.remote, source, target, self.options, self.sink.progress)
        try:
            entries = Entry(names[0], attr, "", 0), old
            result = await self.singles.one((there, here), names, entries, move)
        finally:
            here.close()
        self.folders.add(os.path.dirname(target))
        return result

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Fetch all that is below a directory."""
        entries, plain = _taken_apart(await self.remote.list(source, True), self.options)
        made, existing = False, list[Entry]()
        if not self.options.dry_run:
            made = await in_thread(partial(_make_directory, target, attr.mode))
            self.sink.report.directories += made
        if self.options.looks and os.path.isdir(target):
            existing = await in_thread(partial(scan_local, target))

        async def one(name: str, _: Attr) -> FileResult | None:
            path = name if source == "." else posixpath.join(source, name)
            local = os.path.join(target, name)
            result = await get_file(self.remote, path, local, self.options, self.sink.progress)
            self.folders.add(os.path.dirname(local))
            return result

        there, here = RemoteTree(self.remote, source), LocalTree(target)
        top = attr, made
        work = TreeTransfer(there, here, top, True, entries, plain, existing, self.sink, one)
        try:
            await work.run()
        finally:
            here.close()
        self.folders |= {os.path.dirname(os.path.join(target, one)) for one in work.made}
        self.folders |= {os.path.join(target, os.path.dirname(one.name)) for one in work.small}
        if plain:
            self.folders |= {target, *(os.path.join(target, one.name) for one in work.directories)}

    async def sync(self) -> None:
        """Make all names durable; with fsync "end", what they name, too."""
        if self.options.fsync == "none" or self.options.dry_run:
            return
        synced: set[int] = set()
        for path in self.folders:
            with suppress(FileNotFoundError):
                if self.options.sync:
                    try:
                        await in_thread(partial(sync_directory, path))
                    except FileNotFoundError:
                        raise
                    except OSError as error:
                        self.sink.fail(path, from_os(error, shown(path or ".")))
                elif (device := os.stat(path or ".").st_dev) not in synced:
                    synced.add(device)
                    here = LocalTree(path)
                    await sync_file_system(here, self.sink)
                    here.close()


def _make_directory(target: str, mode: int) -> bool:
    """Make a directory that can be written until the end; whether it was not there."""
    try:
        os.mkdir(target, mode & 0o777 & ~current_umask() | 0o700)
    except FileExistsError:
        if not os.path.isdir(target):
            text = "exists already, and is no directory"
            raise CarefulError(errno.ENOTDIR, text, shown(target)) from None
        return False
    except OSError as error:
        raise from_os(error, shown(target)) from None
    return True


async def get(
    remote: BlockClient,
    sources: list[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Report:
    """Fetch files and trees.

    Args:
        remote: the peer's tree.
        sources: paths in it.
        target: local path: a directory to put them in, or, for one source, its name.
        recursive: whether directories are fetched.
        options: how.
        progress: told of what happens.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    started = time.monotonic()
    into = os.path.isdir(target)
    if len(sources) > 1 and not into:
        raise CarefulError(errno.ENOTDIR, "is no directory to put several files in", shown(target))
    sink = Sink(options, progress, Report())
    work = _Get(remote, sink)
    for source in map(relative, sources):
        try:
            await work.add(source, target, into, recursive)
        except CarefulError as error:
            sink.fail(remote.name(shown(source)), error)
    await work.singles.run()
    await work.sync()
    sink.report.seconds = time.monotonic() - started
    return sink.report


class _Put:
    def __init__(self, remote: BlockClient, sink: Sink) -> None:
        self.remote, self.sink, self.options = remote, sink, sink.options
        self.singles = _Singles(sink)

    async def add(self, source: str, target: str, recursive: bool) -> None:
        """Send a tree, or plan a file."""
        try:
            attr = local_attr(os.stat(source, follow_symlinks=not self.options.links))
        except OSError as error:
            raise from_os(error, shown(source)) from None
        if attr.is_link:
            ends = self._ends(source, target)
            names = os.path.basename(source), posixpath.basename(target)
            await _link(ends, names, self.sink)
            ends[0].close()
        elif attr.is_dir and recursive:
            await self.tree(source, target, attr)
        elif attr.is_dir:
            raise CarefulError(errno.EISDIR, "is a directory; -r sends it", shown(source))
        else:
            self.singles.add(shown(source), attr.bytes, partial(self._file, source, target, attr))

    def _ends(self, source: str, target: str) -> tuple[LocalTree, RemoteTree]:
        """The directories that two files stand in."""
        there = RemoteTree(self.remote, posixpath.dirname(target) or ".")
        return LocalTree(os.path.dirname(source)), there

    async def _file(self, source: str, target: str, attr: Attr) -> FileResult | None:
        here, there = self._ends(source, target)
        names = os.path.basename(source), posixpath.basename(target)
        old = None
        looks = self.options.update or self.options.dry_run
        if looks and (found := await _stat_or_none(self.remote, target)):
            old = Entry(names[1], found, "", 0)
        move = partial(put_file, self.remote, source, target, self.options, self.sink.progress)
        try:
            entries = Entry(names[0], attr, "", 0), old
            return await self.singles.one((here, there), names, entries, move)
        finally:
            here.close()

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Send all that is below a directory."""
        listing = await in_thread(partial(list_local, source))
        entries, plain = _taken_apart(listing, self.options)
        found = await _stat_or_none(self.remote, target)
        if not self.options.dry_run:
            await self.remote.mkdir(target, attr.mode & 0o777 | 0o700)
            self.sink.report.directories += found is None
        existing: list[Entry] = []
        if self.options.looks and found is not None and found.is_dir:
            existing = await scan_remote(self.remote, target)

        async def one(name: str, _: Attr) -> FileResult | None:
            path = posixpath.normpath(posixpath.join(target, name))
            local = os.path.join(source, name)
            return await put_file(self.remote, local, path, self.options, self.sink.progress)

        here, there = LocalTree(source), RemoteTree(self.remote, target)
        top = attr, found is None
        work = TreeTransfer(here, there, top, False, entries, plain, existing, self.sink, one)
        try:
            await work.run()
        finally:
            here.close()


async def _stat_or_none(remote: BlockClient, path: str) -> Attr | None:
    try:
        return await remote.stat(path)
    except CarefulError as error:
        if not_there(error):
            return None
        raise


async def put(
    remote: BlockClient,
    sources: Iterable[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Report:
    """Send files and trees.

    Args:
        remote: the peer's tree.
        sources: local paths.
        target: path in it: a directory to put them in, or, for one source, its name.
        recursive: whether directories are sent.
        options: how.
        progress: told of what happens.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    started = time.monotonic()
    sources = list(sources)
    slash = target.endswith("/")
    target = relative(target)
    there = await _stat_or_none(remote, target)
    into = there is not None and there.is_dir
    if not into and (len(sources) > 1 or (slash and not recursive)):
        raise CarefulError(errno.ENOTDIR, "is no directory", remote.name(shown(target)))
    sink = Sink(options, progress, Report())
    work = _Put(remote, sink)
    for source in sources:
        base = os.path.basename(os.path.abspath(source))
        path = posixpath.normpath(posixpath.join(target, base)) if into else target
        try:
            await work.add(source, path, recursive)
        except CarefulError as error:
            sink.fail(shown(source), error)
    await work.singles.run()
    if options.fsync == "end" and work.singles.jobs and not options.dry_run:
        folder = target if into else posixpath.dirname(target) or "."
        await sync_file_system(RemoteTree(remote, folder), sink)
    sink.report.seconds = time.monotonic() - started
    return sink.report
