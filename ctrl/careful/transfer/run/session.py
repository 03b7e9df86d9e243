"""Opens a session with a peer's files; moves, lists, compares and clears files in it.

All functions run in the caller's event loop. Callers handle signals, threads and output.
"""

from __future__ import annotations

import errno
import posixpath
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from careful.daemon.client import AsyncClient, Client
from careful.daemon.route import Route
from careful.errors import CarefulError, Option, spelled
from careful.transfer.file.move import RESUME
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.block import Attr, BlockClient, Entry, relative
from careful.transfer.protocol.spool import Spool
from careful.transfer.result import Result
from careful.transfer.stream.ends import is_special, transfer
from careful.transfer.stream.local_end import NULL, STDIO, Span
from careful.transfer.tree.copy import TreeTransfer
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.mkpath import MODE, make_path
from careful.transfer.tree.named import Named
from careful.transfer.tree.outcome import Outcome, kind_of
from careful.transfer.tree.scan import taken_apart
from careful.transfer.tree.wildcards import matching

WHOLE = Span()


@asynccontextmanager
async def connected(route: Route) -> AsyncIterator[BlockClient]:
    """Yields a session with a peer. Raises CarefulError: careful is not up here, or the peer cannot
    be reached.
    """
    with Client(route.socket, f"carefuld of {route.instance}") as client:
        ipc = AsyncClient(client)
        try:
            yield await BlockClient.connect(ipc, route.address, route.host, route.timeout_s)
        finally:
            ipc.close()


async def move(
    fetch: bool,
    remote: BlockClient,
    sources: Sequence[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
    span: Span = WHOLE,
) -> Result:
    """Moves files and trees from a peer (fetch) or to it.

    Args:
        fetch: whether the peer has the sources.
        remote: the peer's tree.
        sources: paths; a directory with a trailing slash stands for its contents.
        target: a directory to put them in, or a single file's name.
        recursive: whether to move directories.
        options: how files move.
        progress: receives each step.
        span: the part of a single file to move.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    sources = list(sources)
    if len(sources) > 1:
        _check_several(sources, target, span, [target] if fetch else sources)
    losses = await remote.watch(options.fail_on_loss, progress.retried)
    if len(sources) == 1 and await is_special(remote, sources[0], target, span, fetch):
        report = await transfer(remote, fetch, sources[0], target, span, options, progress)
    else:
        way = Direction(remote, fetch)
        report = await _files(way, sources, target, recursive, options, progress)
    losses.check_end()
    report.lost, report.batch_retries = await losses.so_far(), remote.retries
    return report


get, put = partial(move, True), partial(move, False)


def _check_several(sources: list[str], target: str, span: Span, here: list[str]) -> None:
    ends = ({STDIO} & {*here}) | ({NULL} & {target, *sources})
    what = "--offset, --bytes and --at" if not span.is_whole else min(ends, default="")
    if what:
        raise CarefulError(errno.EINVAL, "only for a single file", what)


async def _files(
    way: Direction,
    sources: Sequence[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Result:
    """Moves files and trees that have names. Raises CarefulError: nothing could be done, or the
    peer is gone.
    """
    began = time.monotonic()
    work = _Command(way, target, Outcome(options, progress, Result()), recursive)
    await work.prepare(len(sources) > 1)
    for source in sources:
        try:
            await work.add(source)
        except CarefulError as error:
            work.sink.fail(way.source.name(source), error)
    await work.named.run()
    work.sink.report.seconds = time.monotonic() - began
    return work.sink.report


class _Command:
    """One command: decides the target of each source.

    As with rsync, "dir" is copied to "target/dir", and "dir/" copies its contents to "target".
    Existing files never change the place of a name.
    """

    def __init__(self, way: Direction, target: str, sink: Outcome, recursive: bool) -> None:
        self.way, self.sink, self.recursive = way, sink, recursive
        self.options = sink.options
        self.slash = target.endswith("/")
        self.target = way.target.path(target)
        self.named = Named(way, sink)
        self.into = self.exists = False
        way.follows = not self.options.links

    async def prepare(self, several: bool) -> None:
        """Decides whether files go into the target; makes the target or its parents if asked to.
        Raises CarefulError: the target must be a directory, and is not.
        """
        if self.way.fetch:
            self.way.here.root = self.target
        there = await self.way.target.stat(self.target, follow=True)
        self.exists = there is not None
        self.into = several or self.slash or (there is not None and there.is_dir)
        if there is not None:
            if self.into and not there.is_dir:
                text = (
                    "is not a directory (several sources need one)"
                    if several
                    else "is not a directory"
                )
                raise CarefulError(errno.ENOTDIR, text, self.way.target.name(self.target))
            return
        own = self.into and not self.recursive  # a tree makes its own directory
        folder = self.target if own else posixpath.dirname(self.target)
        self.sink.report.directories += await make_path(self.way.target, folder, self.options)
        self.exists = own and not self.options.dry_run
        if self.into:
            await self._enter()

    async def _enter(self) -> None:
        """Makes the target a directory, unless it is one. Raises CarefulError: it cannot be made,
        or is another kind of file.
        """
        if self.exists and not self.into:
            raise CarefulError(
                errno.ENOTDIR, "is not a directory", self.way.target.name(self.target)
            )
        if not self.exists and not self.options.dry_run:
            self.sink.report.directories += await self.way.target.make_directory(self.target, MODE)
        self.exists = self.into = True

    async def add(self, given: str) -> None:
        """Moves a tree, or plans a file."""
        way = self.way
        holds = is_contents(given)
        source = way.source.path(given)
        attr = await way.attributes(source, follow=holds or not self.options.links)
        name = way.source.name(source)
        base = posixpath.basename(source)
        inside = way.target.join(self.target, base)
        if attr.is_dir and self.recursive:
            if not holds:
                await self._enter()
            await self._trees(source, self.target if holds else inside, attr)
        elif attr.is_dir:
            text = (
                "is a directory; ",
                Option.RECURSIVE,
                f" {'fetches' if way.fetch else 'sends'} it",
            )
            raise CarefulError(errno.EISDIR, text, name)
        elif attr.is_link and self.options.links:
            await self.named.link(source, inside if self.into else self.target)
        elif attr.is_file or attr.is_link:
            self.named.add(source, inside if self.into else self.target, attr)
        else:  # named by the user: not just skipped
            raise CarefulError(errno.EINVAL, f"is a {kind_of(attr.mode)}, not a file", name)

    async def _trees(self, source: str, target: str, attr: Attr) -> None:
        if attr.inode:
            await self.tree(source, target, attr)
            return
        # The top of several exports, each of which is a tree.
        if not self.options.dry_run:
            await self.way.target.make_directory(target, attr.mode)
        for entry in await self.way.remote.listing(source):
            name = self.way.source.name(entry.name)
            if entry.error:
                self.sink.fail_errno(name, entry.error)
                continue
            try:
                await self.tree(entry.name, self.way.target.join(target, entry.name), entry.attr)
            except CarefulError as error:
                self.sink.fail(name, error)

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Moves everything below a directory."""
        way, options = self.way, self.options
        if not way.fetch:
            way.here.root = source
        listing = await way.source.listing(source)
        made, existing = False, []
        if options.dry_run:
            there = await way.target.stat(target, follow=True)
            made = there is None or not there.is_dir
        else:
            made = await way.target.make_directory(target, attr.mode)
        if made:
            self.sink.note_far(way.source.name(source), attr)
        else:
            existing = (await way.target.listing(target)).entries()
        apart = taken_apart(listing, options, not existing)
        work = TreeTransfer(way, (source, target), (attr, made), apart, existing, self.sink)
        try:
            await work.run()
        except BaseException as error:
            self._tell_continued(error, way.source.name(source))
            raise
        finally:
            work.close()
            if not way.fetch:
                way.here.root = None

    def _tell_continued(self, error: BaseException, name: str) -> None:
        """Reports that a transfer can be resumed, in the error's line if there is one."""
        if not isinstance(error, CarefulError):
            self.sink.progress.note(f"{name}: {spelled(RESUME)}")
        elif Option.AGAIN not in error.parts:
            error.add(*RESUME)


def is_contents(given: str) -> bool:
    """Reports whether a source stands for a directory's contents: "a/", ".", "..", "", "/"."""
    return posixpath.basename(given) in ("", ".", "..")


async def listing(remote: BlockClient, path: str, recursive: bool) -> list[Entry]:
    """Lists a peer's directory, or the entry of a single file. Raises CarefulError: the path does
    not exist.
    """
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.listing(relative(path), recursive)
    return [Entry(relative(path), attr, "", 0)]


async def spooled(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists as listing() does, for any size. Raises CarefulError: the path does not exist."""
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.spooled(relative(path), recursive)
    return Spool(more=(Entry(relative(path), attr, "", 0),))


async def spooled_matching(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists the match of a path with wildcards, as spooled() does; lists several matches
    themselves. Raises CarefulError: no path matches.
    """
    found = await matching(remote, [path])
    if len(found) == 1:
        return await spooled(remote, found[0], recursive)
    attrs = [await remote.stat(relative(one)) for one in found]
    pairs = zip(found, attrs, strict=True)
    return Spool(more=tuple(Entry(name, attr, "", 0) for name, attr in pairs))
