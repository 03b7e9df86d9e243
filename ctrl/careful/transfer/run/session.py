"""Opens a session with a peer's files; moves, lists, compares and clears files in it.

All functions run in the caller's event loop. Callers handle signals, threads and output.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from careful.daemon.client import AsyncClient, Client
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.block import BlockClient, Entry, relative
from careful.transfer.protocol.spool import Spool
from careful.transfer.result import Result
from careful.transfer.run import targets
from careful.transfer.stream.ends import is_special, transfer
from careful.transfer.stream.local import NULL, STDIO, Span
from careful.transfer.tree.direction import Direction

if TYPE_CHECKING:
    from careful.transfer.file.partials import Found
    from careful.transfer.run.verify import Verified

WHOLE = Span()


@asynccontextmanager
async def connected(route: Route) -> AsyncIterator[BlockClient]:
    """Yields a session with a peer.

    Raises:
        CarefulError: careful is not up here, or the peer cannot be reached.
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
    """Moves files and trees from a peer (fetch) or to it: targets.move(), ends.transfer()."""
    sources = list(sources)
    if len(sources) > 1:
        _check_several(sources, target, span, [target] if fetch else sources)
    losses = await remote.watch(options.fail_on_loss, progress.retried)
    if len(sources) == 1 and await is_special(remote, sources[0], target, span, fetch):
        report = await transfer(remote, fetch, sources[0], target, span, options, progress)
    else:
        way = Direction(remote, fetch)
        report = await targets.move(way, sources, target, recursive, options, progress)
    losses.check_end()
    report.lost, report.batch_retries = await losses.so_far(), remote.retries
    return report


get, put = partial(move, True), partial(move, False)


def _check_several(sources: list[str], target: str, span: Span, here: list[str]) -> None:
    ends = ({STDIO} & {*here}) | ({NULL} & {target, *sources})
    what = "--offset, --bytes and --at" if not span.is_whole else min(ends, default="")
    if what:
        raise CarefulError(errno.EINVAL, "only for a single file", what)


async def matching(remote: BlockClient, paths: Sequence[str]) -> list[str]:
    """Expands paths with wildcards; see wildcards.matching()."""
    from careful.transfer.tree import wildcards

    return await wildcards.matching(remote, paths)


async def listing(remote: BlockClient, path: str, recursive: bool) -> list[Entry]:
    """Lists a peer's directory, or the entry of a single file.

    Raises:
        CarefulError: the path does not exist.
    """
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.listing(relative(path), recursive)
    return [Entry(relative(path), attr, "", 0)]


async def spooled(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists as listing() does, for any size.

    Raises:
        CarefulError: the path does not exist.
    """
    attr = await remote.stat(relative(path))
    if attr.is_dir:
        return await remote.spooled(relative(path), recursive)
    return Spool(more=(Entry(relative(path), attr, "", 0),))


async def spooled_matching(remote: BlockClient, path: str, recursive: bool) -> Spool:
    """Lists the match of a path with wildcards, as spooled() does; lists several matches
    themselves.

    Raises:
        CarefulError: no path matches.
    """
    found = await matching(remote, [path])
    if len(found) == 1:
        return await spooled(remote, found[0], recursive)
    attrs = [await remote.stat(relative(one)) for one in found]
    pairs = zip(found, attrs, strict=True)
    return Spool(more=tuple(Entry(name, attr, "", 0) for name, attr in pairs))


async def verify(
    remote: BlockClient, path: str, target: str, recursive: bool, block_bytes: int
) -> Verified:
    """Compares a peer's file or tree with a local one; see verify.verify()."""
    from careful.transfer.run import verify as comparing

    return await comparing.verify(remote, relative(path), target, recursive, block_bytes)


async def partials(remote: BlockClient, path: str, clean: bool) -> list[Found]:
    """Finds partial files below a peer's directory; see partials.find_remote()."""
    from careful.transfer.file.partials import find_remote

    return await find_remote(remote, relative(path), clean)
