"""What the comms of a program share, with a node that is none."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import Any

import pytest

pytest.importorskip("careful._binding")

from careful.dask.hub import PIECES_MAX, Hub
from careful.errors import CarefulError


class Node:
    """One whose carefuld ends."""

    ended = False

    def memory(self, nbytes: int) -> memoryview:
        return memoryview(bytearray(1))

    def register(self, _memory: Any, _access: str) -> Node:
        if self.ended:
            raise CarefulError(errno.ENOTCONN, "", "carefuld")
        return self

    def try_remove(self) -> bool:
        if self.ended:
            raise CarefulError(errno.ENOTCONN, "", "carefuld")
        return True


def hub_of(node: Node) -> Hub:
    hub = Hub.__new__(Hub)
    hub.node, hub.loop = node, asyncio.get_running_loop()  # type: ignore[assignment]
    hub._pieces, hub._pieces_made, hub._pieces_wanted = [], 0, deque()
    return hub


def test_piece__nobody_waits_for_what_has_ended() -> None:
    async def run() -> None:
        node = Node()
        hub = hub_of(node)
        pieces = [await hub.piece() for _ in range(PIECES_MAX)]
        first, *others = [asyncio.ensure_future(hub.piece()) for _ in range(3)]
        await asyncio.sleep(0)
        hub.give_piece(pieces.pop(), clean=False)
        assert await first
        node.ended = True
        for piece in pieces:
            hub.give_piece(piece, clean=False)
        for one in others:
            with pytest.raises(CarefulError) as caught:
                await asyncio.wait_for(one, 30)
            assert caught.value.errno == errno.ENOTCONN
        with pytest.raises(CarefulError):
            await asyncio.wait_for(hub.piece(), 30)

    asyncio.run(run())
