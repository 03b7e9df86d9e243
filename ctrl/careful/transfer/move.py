"""What `get` and `put` are asked for: several sources, files and trees.

Owns names: where a source goes. How a tree gets there is tree/copy.py's; without
options.links symlinks are skipped by name (rsync's habit without -l), special files always.
"""

from __future__ import annotations

import errno
import os
import posixpath
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from careful.errors import CarefulError, from_os
from careful.transfer.file.blocks import in_thread
from careful.transfer.file.compare import common_bytes
from careful.transfer.file.copy import get_file, put_file
from careful.transfer.file.journal import tag_of
from careful.transfer.file.local import current_umask, shown, sync_directory
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.partials import clear_local, clear_remote
from careful.transfer.protocol.batch import LocalTree, RemoteTree
from careful.transfer.protocol.block import Attr, BlockClient, Entry, relative
from careful.transfer.report import Report
from careful.transfer.tree.attributes import sync_file_system
from careful.transfer.tree.copy import TreeTransfer, Ways
from careful.transfer.tree.interrupted import again
from careful.transfer.tree.marks import LocalMark, Mark, RemoteMark, mark_of
from careful.transfer.tree.named import Singles, make_link
from careful.transfer.tree.outcome import Sink, kind_of
from careful.transfer.tree.scan import (
    carried,
    list_local,
    local_attr,
    not_there,
    scan_local,
    scan_remote,
    taken_apart,
)
from careful.transfer.tree.sources import Several, several_here, several_there, tell_continued

__all__ = ["Report", "get", "put"]


class _Get:
    def __init__(self, remote: BlockClient, sink: Sink, several: Several, folder: str) -> None:
        self.remote, self.sink, self.options = remote, sink, sink.options
        self.several, self.folder = several, folder
        self.singles = Singles(sink)
        self.folders: set[str] = set()

    async def add(self, source: str, target: str, into: bool, recursive: bool) -> None:
        """Fetch a tree, or plan a file."""
        name = self.remote.name(shown(source))
        attr = await self.remote.stat(source)
        base = "" if source == "." else posixpath.basename(source)
        local = os.path.join(target, base) if into and base else target
        if attr.is_dir and recursive and not attr.inode:  # the top of several exports
            if not self.options.dry_run:
                await in_thread(partial(_make_directory, local, attr.mode))
            for entry in await self.remote.listing(source):
                await self.tree(entry.name, os.path.join(local, entry.name), entry.attr)
        elif attr.is_dir and recursive:
            await self.tree(source, local, attr)
        elif attr.is_dir:
            raise CarefulError(errno.EISDIR, "is a directory; -r fetches it", name)
        elif attr.is_link and self.options.links:
            ends, mark = self._ends(source, local), self.claim(local)
            names = posixpath.basename(source), os.path.basename(local)
            await make_link(ends, names, self.sink, mark)
            ends[1].close()
        elif attr.is_file or attr.is_link:
            mark = self.claim(local)
            self.singles.add(name, attr.bytes, partial(self._file, source, local, attr, mark))
        else:  # asked for by name: not merely skipped
            text = f"is a {kind_of(attr.mode)}, no file"
            raise CarefulError(errno.EINVAL, text, name)

    def claim(self, target: str, tree: str = "") -> Mark | None:
        """See Several.claim()."""
        return self.several.claim(os.path.relpath(target, self.folder), tree)

    def _ends(self, source: str, target: str) -> tuple[RemoteTree, LocalTree]:
        """The directories that two files stand in."""
        there = RemoteTree(self.remote, posixpath.dirname(source) or ".")
        return there, LocalTree(os.path.dirname(target))

    async def _file(
        self, source: str, target: str, attr: Attr, mark: Mark | None
    ) -> FileResult | None:
        there, here = self._ends(source, target)
        names = posixpath.basename(source), os.path.basename(target)
        try:
            old = Entry(names[1], local_attr(os.stat(target)), "", 0)
        except OSError:
            old = None
        move = partial(get_file, self.remote, source, target, progress=self.sink.progress)
        compare = partial(common_bytes, self.remote, source, target, self.options.block_bytes)
        try:
            entries = Entry(names[0], attr, "", 0), old
            result = await self.singles.one((there, here), names, entries, move, compare, mark)
        finally:
            here.close()
        self.folders.add(os.path.dirname(target))
        return result

    def mark(self, source: str, target: str) -> LocalMark:
        """The mark of a tree that is fetched."""
        tag = tag_of("get tree", self.remote.name(source))
        return LocalMark(target, tag, self.options.fsync != "none")

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Fetch all that is below a directory."""
        where, name = self.mark(source, target), self.remote.name(shown(source))
        mark = self.claim(target, name) if os.path.isdir(target) else None
        mark = await where.look() or mark
        sink, spares = again(self.sink, mark)
        apart = taken_apart(await self.remote.list(source, True), sink.options, mark is None)
        plain = apart.plain
        made, existing = False, list[Entry]()
        if not sink.options.dry_run:
            made = await in_thread(partial(_make_directory, target, attr.mode))
            sink.report.directories += made
        if not made and os.path.isdir(target):
            existing = await in_thread(partial(scan_local, target))
        if not sink.options.dry_run:
            await where.begin(mark or mark_of(name, existing, not made))

        def ends(one: str) -> tuple[str, str]:
            return _below(source, one), os.path.join(target, one)

        async def move(one: str, _: Attr) -> FileResult | None:
            path, local = ends(one)
            result = await get_file(self.remote, path, local, sink.options, sink.progress)
            self.folders.add(os.path.dirname(local))
            return result

        async def compare(one: str) -> tuple[int, bool]:
            return await common_bytes(self.remote, *ends(one), sink.options.block_bytes)

        async def clear(names: list[str]) -> None:
            paths = [os.path.join(target, one) for one in names]
            await in_thread(partial(clear_local, paths, "" if sink.report.failures else name))

        there, here = RemoteTree(self.remote, source), LocalTree(target)
        ways = Ways(move, compare, clear, partial(where.end, True))
        top = attr, made
        work = TreeTransfer(
            there, here, top, mark, True, apart.entries, plain, existing, sink, ways, spares
        )
        try:
            await work.run()
        except BaseException as error:
            tell_continued(error, name, sink.progress)
            raise
        finally:
            here.close()
            await where.end(False)
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
    paths = [relative(source) for source in sources]
    several = several_here(remote, paths, target, sink, recursive)
    work = _Get(remote, sink, several, target)
    if into and recursive and len(sources) == 1:  # else an earlier run made the directory
        into = not work.mark(paths[0], target).is_there
    async with several.under_way():
        for source in paths:
            try:
                await work.add(source, target, into, recursive)
            except CarefulError as error:
                sink.fail(remote.name(shown(source)), error)
        await work.singles.run()
        await work.sync()
    sink.report.seconds = time.monotonic() - started
    return sink.report


class _Put:
    def __init__(self, remote: BlockClient, sink: Sink, several: Several, folder: str) -> None:
        self.remote, self.sink, self.options = remote, sink, sink.options
        self.several, self.folder = several, folder
        self.singles = Singles(sink)

    async def add(self, source: str, target: str, recursive: bool) -> None:
        """Send a tree, or plan a file."""
        try:
            attr = local_attr(os.stat(source, follow_symlinks=not self.options.links))
        except OSError as error:
            raise from_os(error, shown(source)) from None
        if self.options.keeps_times and attr != carried(attr):
            text = "its time is not between 1678 and 2262: the nearest is set"
            self.sink.progress.note(f"{shown(source)}: {text}")
        attr = carried(attr)
        if attr.is_link:
            ends = self._ends(source, target)
            names = os.path.basename(source), posixpath.basename(target)
            await make_link(ends, names, self.sink, self.claim(target))
            ends[0].close()
        elif attr.is_dir and recursive:
            await self.tree(source, target, attr)
        elif attr.is_dir:
            raise CarefulError(errno.EISDIR, "is a directory; -r sends it", shown(source))
        else:
            move = partial(self._file, source, target, attr, self.claim(target))
            self.singles.add(shown(source), attr.bytes, move)

    def claim(self, target: str, tree: str = "") -> Mark | None:
        """See Several.claim()."""
        return self.several.claim(posixpath.relpath(target, self.folder), tree)

    def _ends(self, source: str, target: str) -> tuple[LocalTree, RemoteTree]:
        """The directories that two files stand in."""
        there = RemoteTree(self.remote, posixpath.dirname(target) or ".")
        return LocalTree(os.path.dirname(source)), there

    async def _file(
        self, source: str, target: str, attr: Attr, mark: Mark | None
    ) -> FileResult | None:
        here, there = self._ends(source, target)
        names = os.path.basename(source), posixpath.basename(target)
        old = None
        looks = self.options.update or self.options.dry_run or mark is not None
        if looks and (found := await _stat_or_none(self.remote, target)):
            old = Entry(names[1], found, "", 0)
        move = partial(put_file, self.remote, source, target, progress=self.sink.progress)
        compare = partial(common_bytes, self.remote, target, source, self.options.block_bytes)
        try:
            entries = Entry(names[0], attr, "", 0), old
            return await self.singles.one((here, there), names, entries, move, compare, mark)
        finally:
            here.close()

    def mark(self, source: str, target: str) -> RemoteMark:
        """The mark of a tree that is sent."""
        tag = tag_of("put tree", os.uname().nodename, os.path.abspath(source))
        return RemoteMark(self.remote, target, tag, self.options.fsync != "none")

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Send all that is below a directory."""
        where = self.mark(source, target)
        found = await _stat_or_none(self.remote, target)
        mark = None
        if found is not None:
            mark = self.claim(target, shown(source))
            mark = await where.look() or mark
        sink, spares = again(self.sink, mark)
        listing = await in_thread(partial(list_local, source))
        apart = taken_apart(listing, sink.options, mark is None)
        if not sink.options.dry_run:
            await self.remote.mkdir(target, attr.mode & 0o777 | 0o700)
            sink.report.directories += found is None
        existing: list[Entry] = []
        if found is not None and found.is_dir:
            existing = await scan_remote(self.remote, target)
        if not sink.options.dry_run:
            await where.begin(mark or mark_of(shown(source), existing, found is not None))

        def ends(one: str) -> tuple[str, str]:
            return posixpath.normpath(posixpath.join(target, one)), os.path.join(source, one)

        async def move(one: str, _: Attr) -> FileResult | None:
            path, local = ends(one)
            return await put_file(self.remote, local, path, sink.options, sink.progress)

        async def compare(one: str) -> tuple[int, bool]:
            return await common_bytes(self.remote, *ends(one), sink.options.block_bytes)

        async def clear(names: list[str]) -> None:
            whole = "" if sink.report.failures else shown(source).rstrip("/")
            await clear_remote(self.remote, target, names, whole)

        here, there = LocalTree(source), RemoteTree(self.remote, target)
        ways = Ways(move, compare, clear, partial(where.end, True))
        top = attr, found is None
        work = TreeTransfer(
            here, there, top, mark, False, apart.entries, apart.plain, existing, sink, ways, spares
        )
        try:
            await work.run()
        except BaseException as error:
            tell_continued(error, shown(source), sink.progress)
            raise
        finally:
            here.close()
            await where.end(False)


def _below(top: str, name: str) -> str:
    """A peer's path below a directory."""
    return name if top == "." else posixpath.join(top, name)


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
    several = several_there(remote, sources, target, sink, recursive)
    work = _Put(remote, sink, several, target)
    if into and recursive and len(sources) == 1 and os.path.isdir(sources[0]):
        # Else an earlier run made the directory.
        into = not await work.mark(sources[0], target).is_there()
    async with several.under_way():
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
