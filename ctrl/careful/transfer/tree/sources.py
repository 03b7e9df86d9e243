"""Several sources in one command that goes on where an interrupted run of it ended.

Owns the mark of the command, which stands in the directory they go to until all is there: what
that had of their names when the first run began. What came since is compared, not refused.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from careful.errors import CarefulError
from careful.transfer.file.blocks import in_thread
from careful.transfer.file.copy import GOES_ON
from careful.transfer.file.journal import tag_of
from careful.transfer.file.local import shown
from careful.transfer.options import Progress
from careful.transfer.protocol.block import BlockClient, Entry
from careful.transfer.tree.marks import LocalMark, Mark, MarkFile, RemoteMark, kept_name
from careful.transfer.tree.outcome import Sink
from careful.transfer.tree.scan import scan_local, scan_remote

#: As a mark's names have the directory itself.
_TOP = "./"


def tell_continued(error: BaseException, name: str, progress: Progress) -> None:
    """Say that a transfer can go on: in the error's line, if there will be one."""
    if not isinstance(error, CarefulError):
        progress.note(f"{name}: {GOES_ON}")
    elif GOES_ON not in error.reason and error.errno != errno.EBUSY:
        error.reason += f"; {GOES_ON}"


class Several:
    """What an earlier run of a command brought.

    Args:
        sources: as people call them.
        where: the mark; None: a command of one source has none.
        before: what the directory has of their names.
        sink: of the command.
    """

    def __init__(
        self,
        sources: Sequence[str],
        where: MarkFile | None,
        before: Callable[[], Awaitable[set[str]]],
        sink: Sink,
    ) -> None:
        self._name = f"{sources[0]} and {len(sources) - 1} more"
        self._where, self._before, self._sink = where, before, sink
        self._mark: Mark | None = None
        self._claimed: set[str] = set()

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """The mark stands; it goes in the end if nothing is missing that may still come.

        Raises:
            CarefulError: the same command is under way.
        """
        if self._where is None:
            yield
            return
        self._mark = await self._where.look()
        done = False
        try:
            if not self._sink.options.dry_run:
                before = frozenset() if self._mark else frozenset(await self._before())
                await self._where.begin(self._mark or Mark(self._name, before, "command"))
            yield
            done = not self._sink.report.may_go_on
        except BaseException as error:
            tell_continued(error, self._name, self._sink.progress)
            raise
        finally:
            await self._where.end(done)

    def claim(self, name: str, tree: str = "") -> Mark | None:
        """The mark of one source, if an earlier run may have brought it.

        Of several sources that go to one name the first has it: that the others are refused
        is no matter of an interruption.

        Args:
            name: that it gets in the directory; "." is the directory itself.
            tree: what people call it, if the mark is to be that of the tree below.
        """
        if self._mark is None or name in self._claimed:
            return None
        self._claimed.add(name)
        if not tree:
            return self._mark
        top = _top(name)
        below = {one.removeprefix(top) for one in self._mark.before if one.startswith(top)}
        return Mark(tree, frozenset(one or _TOP for one in below))


def several_here(
    remote: BlockClient, sources: Sequence[str], target: str, sink: Sink, trees: bool
) -> Several:
    """Sources of a peer's that go to a directory of this machine.

    Args:
        remote: the peer's tree.
        sources: paths in it.
        target: the directory.
        sink: of the command.
        trees: whether directories come with what is below.
    """
    names = [remote.name(shown(source)) for source in sources]
    tag = tag_of("get several", *sorted(set(names)))
    where = LocalMark(target, tag, sink.options.fsync != "none") if len(names) > 1 else None
    bases = {posixpath.basename(source) or "." for source in sources}
    return Several(names, where, partial(in_thread, partial(_here, target, bases, trees)), sink)


def several_there(
    remote: BlockClient, sources: Sequence[str], target: str, sink: Sink, trees: bool
) -> Several:
    """Likewise, sources of this machine that go to a directory of a peer's."""
    ends = [os.path.abspath(source) for source in sources]
    tag = tag_of("put several", os.uname().nodename, *sorted(set(ends)))
    sync = sink.options.fsync != "none"
    where = RemoteMark(remote, target, tag, sync) if len(ends) > 1 else None
    bases = {os.path.basename(end) for end in ends}
    names = [shown(source) for source in sources]
    return Several(names, where, partial(_there, remote, target, bases, trees), sink)


def _top(name: str) -> str:
    return "" if name == "." else name + "/"


def _tree(name: str, entries: Sequence[Entry]) -> set[str]:
    """A directory, and what it has, as a mark names it."""
    top = _top(name)
    return {top or _TOP} | {kept_name(top + one.name, one.attr.is_dir) for one in entries}


def _here(folder: str, names: Iterable[str], trees: bool) -> set[str]:
    found: set[str] = set()
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.isdir(path):
            found |= {name} if os.path.lexists(path) else set()
            continue
        found |= _tree(name, [])
        with suppress(CarefulError):  # whoever fetches the tree says so
            found |= _tree(name, scan_local(path) if trees else [])
    return found


async def _there(remote: BlockClient, folder: str, names: set[str], trees: bool) -> set[str]:
    found: set[str] = set()
    for one in await remote.listing(folder):
        if one.name not in names:
            continue
        found.add(kept_name(one.name, one.attr.is_dir))
        if one.attr.is_dir and trees:
            with suppress(CarefulError):  # whoever sends the tree says so
                path = posixpath.normpath(posixpath.join(folder, one.name))
                found |= _tree(one.name, await scan_remote(remote, path))
    return found
