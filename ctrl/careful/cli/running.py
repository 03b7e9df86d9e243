"""What a command asks of a peer, run to its end or to a signal.

Owns the event loop, and that SIGINT, SIGTERM and SIGHUP end it cleanly: what is under way is
cancelled, and cleans up. It calls transfer/session.py.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from careful.daemon.route import Route
from careful.errors import Ended
from careful.transfer.protocol.block import BlockClient
from careful.transfer.session import connected

_T = TypeVar("_T")
Work = Callable[[BlockClient], Coroutine[Any, Any, _T]]


def run(route: Route, work: Work[_T]) -> _T:
    """Do work(peer) in a session of its own.

    Raises:
        CarefulError: the peer cannot be reached, or the work failed.
        Ended: SIGTERM or SIGHUP came, which our parent does not ignore.
        KeyboardInterrupt: SIGINT came.
    """
    return asyncio.run(_guarded(route, work))


async def _guarded(route: Route, work: Work[_T]) -> _T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            loop.add_signal_handler(number, end, number)
    try:
        async with connected(route) as remote:
            return await work(remote)
    except asyncio.CancelledError:
        if received:
            raise Ended(received[0]) from None
        raise
