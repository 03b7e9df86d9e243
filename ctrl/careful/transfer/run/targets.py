"""Carries out get and put: decides the target of each source.

As with rsync, "dir" is copied to "target/dir", and "dir/" copies its contents to "target". Existing
files never change the place of a name.
"""

from __future__ import annotations

import errno
import posixpath
import time
from collections.abc import Sequence

from careful.errors import CarefulError, Option, spelled
from careful.transfer.file.move import RESUME
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.block import Attr
from careful.transfer.result import Result
from careful.transfer.tree.copy import TreeTransfer
from careful.transfer.tree.direction import Direction
from careful.transfer.tree.mkpath import MODE, make_path
from careful.transfer.tree.named import Named
from careful.transfer.tree.outcome import Outcome, kind_of
from careful.transfer.tree.scan import taken_apart

__all__ = ["Result", "move"]


async def move(
    way: Direction,
    sources: Sequence[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
) -> Result:
    """Moves files and trees.

    Args:
        way: source and target of the transfer.
        sources: paths; a directory with a trailing slash stands for its contents.
        target: a directory to put them in, or a single file's name.
        recursive: whether to move directories.
        options: how files move.
        progress: receives each step.

    Raises:
        CarefulError: nothing could be done, or the peer is gone.
    """
    began = time.monotonic()
    work = _Move(way, target, Outcome(options, progress, Result()), recursive)
    await work.prepare(len(sources) > 1)
    for source in sources:
        try:
            await work.add(source)
        except CarefulError as error:
            work.sink.fail(way.source.name(source), error)
    await work.named.run()
    work.sink.report.seconds = time.monotonic() - began
    return work.sink.report


class _Move:
    """One command."""

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

        Raises:
            CarefulError: the target must be a directory, and is not.
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
        """Makes the target a directory, unless it is one.

        Raises:
            CarefulError: it cannot be made, or is another kind of file.
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
