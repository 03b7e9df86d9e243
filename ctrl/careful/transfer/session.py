"""From a call to an event loop and back: the entry points of this package.

Owns the connection to carefuld, the loop, and that SIGINT and SIGTERM end a
transfer cleanly.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from careful.daemon.client import AsyncClient, Client
from careful.daemon.route import Route
from careful.errors import Ended
from careful.transfer import move
from careful.transfer.file.copy import Options, Progress
from careful.transfer.protocol.block import BlockClient, Entry, relative
from careful.transfer.stream.ends import Span, is_special, transfer

if TYPE_CHECKING:
    from careful.transfer.partials import Found
    from careful.transfer.verify import Verified

_T = TypeVar("_T")
WHOLE = Span()


async def _guarded(route: Route, work: Callable[[BlockClient], Coroutine[Any, Any, _T]]) -> _T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, end, number)
    with Client(route.socket, f"carefuld of {route.instance}") as client:
        ipc = AsyncClient(client)
        try:
            remote = await BlockClient.connect(ipc, route.address, route.host, route.timeout_s)
            return await work(remote)
        except asyncio.CancelledError:
            if received:
                raise Ended(received[0]) from None
            raise
        finally:
            ipc.close()


def get(
    route: Route,
    sources: list[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
    span: Span = WHOLE,
) -> move.Report:
    """Fetch files and trees from a peer; see move.get(), and ends.transfer()."""
    return _move(route, True, sources, target, recursive, options, progress, span)


def put(
    route: Route,
    sources: list[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
    span: Span = WHOLE,
) -> move.Report:
    """Send files and trees to a peer; see move.put(), and ends.transfer()."""
    return _move(route, False, sources, target, recursive, options, progress, span)


def _move(
    route: Route,
    fetch: bool,
    sources: list[str],
    target: str,
    recursive: bool,
    options: Options,
    progress: Progress,
    span: Span,
) -> move.Report:
    async def work(remote: BlockClient) -> move.Report:
        losses = await remote.watch(options.fail_on_loss, progress.retried)
        if len(sources) == 1 and await is_special(remote, sources[0], target, span, fetch):
            report = await transfer(remote, fetch, sources[0], target, span, options, progress)
        else:
            way = move.get if fetch else move.put
            report = await way(remote, sources, target, recursive, options, progress)
        report.lost, report.batch_retries = await losses.so_far(), remote.retries
        return report

    return asyncio.run(_guarded(route, work))


def listing(route: Route, path: str, recursive: bool) -> list[Entry]:
    """The entries of a directory of the peer's, or the one that a file is.

    Raises:
        CarefulError: the peer cannot be reached, or there is no such path.
    """

    async def work(remote: BlockClient) -> list[Entry]:
        attr = await remote.stat(relative(path))
        if attr.is_dir:
            return await remote.listing(relative(path), recursive)
        return [Entry(relative(path), attr, "", 0)]

    return asyncio.run(_guarded(route, work))


def verify(route: Route, path: str, target: str, recursive: bool, block_bytes: int) -> Verified:
    """Compare a peer's file or tree with one of this machine; see verify.verify()."""
    from careful.transfer import verify as comparing

    return asyncio.run(
        _guarded(
            route,
            lambda remote: comparing.verify(remote, relative(path), target, recursive, block_bytes),
        )
    )


def partials(route: Route, path: str, clean: bool) -> list[Found]:
    """Partial files below a directory of a peer's; see partials.find_remote()."""
    from careful.transfer.partials import find_remote

    return asyncio.run(_guarded(route, lambda remote: find_remote(remote, relative(path), clean)))
