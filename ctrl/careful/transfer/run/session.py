"""Opens a session with a peer's files; moves, lists, compares and clears files in it.

All functions run in the caller's event loop; callers handle signals, threads and output.
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
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr, Entry, relative
from careful.transfer.protocol.spool import Spool
from careful.transfer.result import Result
from careful.transfer.stream.ends import is_special, transfer
from careful.transfer.stream.local_end import NULL, STDIO, Span
from careful.transfer.tree.copy import TreeTransfer
from careful.transfer.tree.direction import MODE, Direction, make_path
from careful.transfer.tree.named import Named
from careful.transfer.tree.outcome import Outcome, kind_of
from careful.transfer.tree.scan import split_listing
from careful.transfer.tree.wildcards import matching

WHOLE = Span()


@asynccontextmanager
async def connected(route: Route) -> AsyncIterator[BlockClient]:
    """Yields a session with a peer. Raises CarefulError: no carefuld here, or no answer there."""
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
    """Moves files and trees from a peer (fetch) or to it. Raises CarefulError: nothing could be
    done, or the peer is gone.

    Args:
        fetch: whether the peer has the sources.
        remote: the peer's tree.
        sources: paths; a directory with a trailing slash stands for its contents.
        target: a directory to put them in, or the name of a single file.
        recursive: whether to move directories.
        options: how files move.
        progress: receives each step.
        span: the part of a single file to move.
    """
    sources = list(sources)
    if len(sources) > 1:
        _check_several(sources, target, span, [target] if fetch else sources)
    losses = await remote.watch(options.fail_on_loss, progress.retried)
    if len(sources) == 1 and await is_special(remote, sources[0], target, span, fetch):
        report = await transfer(remote, fetch, sources[0], target, span, options, progress)
    else:
        direction = Direction(remote, fetch)
        report = await _files(direction, sources, target, recursive, options, progress)
    losses.check_end()
    report.lost, report.batch_retries = await losses.so_far(), remote.retries
    return report


get, put = partial(move, True), partial(move, False)


def _check_several(sources: list[str], target: str, span: Span, here: list[str]) -> None:
    ends = ({STDIO} & {*here}) | ({NULL} & {target, *sources})
    subject = "--offset, --bytes and --at" if not span.is_whole else min(ends, default="")
    if subject:
        raise CarefulError(errno.EINVAL, "only for a single file", subject)


async def _files(
    direction: Direction,
    sources: Sequence[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Result:
    """Moves files and trees that have names."""
    began = time.monotonic()
    command = _Command(direction, target, Outcome(options, progress, Result()), recursive)
    await command.prepare(len(sources) > 1)
    for source in sources:
        try:
            await command.add(source)
        except CarefulError as error:
            command.outcome.fail(direction.source.name(source), error)
    await command.named.run()
    command.outcome.report.seconds = time.monotonic() - began
    return command.outcome.report


class _Command:
    """One command: decides the target of each source.

    As with rsync, "dir" is copied to "target/dir", and "dir/" copies its contents to "target".
    Whether "target" exists does not change where a directory goes.
    """

    def __init__(
        self, direction: Direction, target: str, outcome: Outcome, recursive: bool
    ) -> None:
        self.direction, self.outcome, self.recursive = direction, outcome, recursive
        self.options = outcome.options
        self.has_slash = target.endswith("/")
        self.target = direction.target.path(target)
        self.named = Named(direction, outcome)
        self.into_directory = self.exists = False
        direction.follows_symlinks = not self.options.links

    async def prepare(self, several: bool) -> None:
        """Decides whether files go into the target; makes the target or its parents if asked to."""
        if self.direction.fetch:
            self.direction.here.root = self.target
        existing = await self.direction.target.stat(self.target, follow=True)
        self.exists = existing is not None
        self.into_directory = (
            several or self.has_slash or (existing is not None and existing.is_dir)
        )
        if existing is not None:
            if self.into_directory and not existing.is_dir:
                text = "is not a directory" + " (several sources need one)" * several
                raise CarefulError(errno.ENOTDIR, text, self.direction.target.name(self.target))
            return
        with_target = self.into_directory and not self.recursive  # a tree's target is made later
        folder = self.target if with_target else posixpath.dirname(self.target)
        self.outcome.report.directories += await make_path(
            self.direction.target, folder, self.options
        )
        self.exists = with_target and not self.options.dry_run
        if self.into_directory:
            await self._enter()

    async def _enter(self) -> None:
        """Makes the target a directory, unless it is one."""
        if self.exists and not self.into_directory:
            raise CarefulError(
                errno.ENOTDIR, "is not a directory", self.direction.target.name(self.target)
            )
        if not self.exists and not self.options.dry_run:
            self.outcome.report.directories += await self.direction.target.make_directory(
                self.target, MODE
            )
        self.exists = self.into_directory = True

    async def add(self, path: str) -> None:
        """Moves a tree, or plans a file."""
        direction = self.direction
        is_content = posixpath.basename(path) in ("", ".", "..")  # of the directory: "a/", "/", "."
        source = direction.source.path(path)
        attr = await direction.attributes(source, follow=is_content or not self.options.links)
        name, base = direction.source.name(source), posixpath.basename(source)
        inside = direction.target.join(self.target, base)
        if attr.is_dir and self.recursive:
            if not is_content:
                await self._enter()
            await self._trees(source, self.target if is_content else inside, attr)
        elif attr.is_dir:
            text = (
                "is a directory; ",
                Option.RECURSIVE,
                f" {'fetches' if direction.fetch else 'sends'} it",
            )
            raise CarefulError(errno.EISDIR, text, name)
        elif attr.is_link and self.options.links:
            await self.named.link(source, inside if self.into_directory else self.target)
        elif attr.is_file or attr.is_link:
            self.named.add(source, inside if self.into_directory else self.target, attr)
        else:  # the user named it, so it is not just skipped
            raise CarefulError(errno.EINVAL, f"is a {kind_of(attr.mode)}, not a file", name)

    async def _trees(self, source: str, target: str, attr: Attr) -> None:
        if attr.inode:
            await self.tree(source, target, attr)
            return
        # The top of several exports, each of which is a tree.
        if not self.options.dry_run:
            await self.direction.target.make_directory(target, attr.mode)
        for entry in await self.direction.remote.listing(source):
            name = self.direction.source.name(entry.name)
            if entry.error:
                self.outcome.fail_errno(name, entry.error)
                continue
            try:
                await self.tree(
                    entry.name, self.direction.target.join(target, entry.name), entry.attr
                )
            except CarefulError as error:
                self.outcome.fail(name, error)

    async def tree(self, source: str, target: str, attr: Attr) -> None:
        """Moves everything below a directory."""
        direction, options = self.direction, self.options
        if not direction.fetch:
            direction.here.root = source
        listing = await direction.source.listing(source)
        is_new, existing = False, []
        if options.dry_run:
            directory = await direction.target.stat(target, follow=True)
            is_new = directory is None or not directory.is_dir
        else:
            is_new = await direction.target.make_directory(target, attr.mode)
        if is_new:
            self.outcome.note_far(direction.source.name(source), attr)
        else:
            existing = (await direction.target.listing(target)).entries()
        self.outcome.report.trees += 1
        split = split_listing(listing, options, not existing)
        tree_transfer = TreeTransfer(
            direction, (source, target), (attr, is_new), split, existing, self.outcome
        )
        try:
            await tree_transfer.run()
        except BaseException as error:
            if not isinstance(error, CarefulError):
                text = f"{direction.source.name(source)}: {spelled(RESUME)}"
                self.outcome.progress.note(text)
            elif Option.AGAIN not in error.parts:
                error.add(*RESUME)
            raise
        finally:
            tree_transfer.close()
            if not direction.fetch:
                direction.here.root = None


async def listing(remote: BlockClient, path: str, recursive: bool) -> list[Entry]:
    """Lists a peer's directory, or a single file. Raises CarefulError: the path does not exist."""
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.listing(relative(path), recursive)
    return [Entry(relative(path), attr, "", 0)]


async def spooled(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists as listing() does, whatever the size. Raises CarefulError: the path does not exist."""
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.spooled(relative(path), recursive)
    return Spool(more=(Entry(relative(path), attr, "", 0),))


async def spooled_matching(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists the only match of a path with wildcards as spooled() does; lists several matches
    themselves. Raises CarefulError: no path matches.
    """
    matches = await matching(remote, [path])
    if len(matches) == 1:
        return await spooled(remote, matches[0], recursive)
    attrs = [await remote.stat(relative(one)) for one in matches]
    pairs = zip(matches, attrs, strict=True)
    return Spool(more=tuple(Entry(name, attr, "", 0) for name, attr in pairs))
