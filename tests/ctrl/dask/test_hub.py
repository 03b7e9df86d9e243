"""The shared hub of a program's comms, with a fake node."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest

pytest.importorskip("distributed")

from careful.dask import comm as comm_module
from careful.dask.backend import CarefulConnector
from careful.dask.comm import CarefulComm
from careful.dask.hub import HANDLERS_PER_SERVICE, OPEN, OPENED, PIECES_MAX, Hub
from careful.dask.link import Kind
from careful.errors import CarefulError
from careful.node import Result
from distributed.comm.core import CommClosedError
from distributed.comm.utils import to_frames


class Node:
    """A node whose carefuld ends."""

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
    hub._pieces, hub._pieces_made, hub._piece_waiters = [], 0, deque()
    return hub


def test_piece__no_wait_for_an_ended_piece() -> None:
    async def run() -> None:
        node = Node()
        hub = hub_of(node)
        pieces = [await hub.piece() for _ in range(PIECES_MAX)]
        first, *others = [asyncio.ensure_future(hub.piece()) for _ in range(3)]
        await asyncio.sleep(0)
        hub.release_piece(pieces.pop(), is_idle=False)
        assert await first
        node.ended = True
        for piece in pieces:
            hub.release_piece(piece, is_idle=False)
        for one in others:
            with pytest.raises(CarefulError) as caught:
                await asyncio.wait_for(one, 30)
            assert caught.value.errno == errno.ENOTCONN
        with pytest.raises(CarefulError):
            await asyncio.wait_for(hub.piece(), 30)

    asyncio.run(run())


def test_piece__given_up_is_left_to_the_next() -> None:
    async def run() -> None:
        hub = hub_of(Node())
        pieces = [await hub.piece() for _ in range(PIECES_MAX)]
        first, second = (asyncio.ensure_future(hub.piece()) for _ in range(2))
        await asyncio.sleep(0)
        hub.release_piece(pieces.pop())
        first.cancel()  # it was woken
        assert await asyncio.wait_for(second, 30)
        assert first.cancelled()

    asyncio.run(run())


def comms_of(hub: Hub) -> Hub:
    hub.comms, hub.links, hub.services = WeakValueDictionary(), {}, {}
    hub._tasks, hub._users, hub.program = set(), 1, 7
    return hub


def test_chunk__too_far_ahead_is_not_kept() -> None:
    """A hostile program sends chunks that would never be used."""

    async def run() -> None:
        comm = CarefulComm(comms_of(hub_of(Node())))
        for number in range(15, 100_000):
            comm.on_chunk(number, True, b"early")
        assert list(comm._chunks_ahead) == [15]
        for number in range(15):
            comm.on_chunk(number, True, b"next")
            comm.on_chunk(number, True, b"again")
        assert [head for _, head in comm._inbox] == [b"next"] * 15 + [b"early"]
        assert comm._chunks_ahead == {}

    asyncio.run(run())


def test_chunk__waits_for_a_reader_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small messages go to the reader at once; the number of unread ones is bounded."""
    monkeypatch.setattr(comm_module, "_INBOX_BYTES", 10_000)

    async def run() -> None:
        comm = CarefulComm(hub := comms_of(hub_of(Node())))
        head = comm_module._Message(await to_frames("x" * 3000)).head
        message: Any = SimpleNamespace(handler=40, peer=None, payload=head)

        def refused(number: int) -> Any:
            message.args = Kind.CHUNK, comm.number, number, 1
            answer = hub._on_message(message)
            return answer and answer.status

        assert [refused(number) for number in range(6)] == [None] * 4 + [errno.EBUSY] * 2
        assert refused(0) is None  # it was stored, and its answer was lost
        for number in range(4, 10):
            assert await comm.read() == "x" * 3000
            assert [refused(number), refused(number + 1)] == [None, errno.EBUSY]

    asyncio.run(run())


def test_open__a_port_out_of_range() -> None:
    async def run() -> None:
        hub = comms_of(hub_of(Node()))
        hub.services[40 + HANDLERS_PER_SERVICE] = pytest.fail
        payload = OPEN.pack(HANDLERS_PER_SERVICE, 1, 2, 3)
        message: Any = SimpleNamespace(handler=40, payload=payload, args=(Kind.OPEN, 1, 0, 0))
        assert hub._on_message(message).status == errno.EPROTO
        assert hub.links == {}

    asyncio.run(run())


class Asked:
    """An operation that continues when its awaiting task is cancelled."""

    def __init__(self, answer: asyncio.Future[Result]) -> None:
        self.add_done_callback = answer.add_done_callback
        self.answer = answer

    def __await__(self) -> Any:
        return asyncio.shield(self.answer).__await__()


class Peer:
    """A peer that answers OPEN on command."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def request(self, handler: int, payload: bytes, words: tuple[int, ...]) -> Any:
        self.asked.append((handler, *words[:2]))
        return Asked(self.answer)


def connecting(peer: Peer) -> tuple[Hub, CarefulComm, Any]:
    hub = comms_of(hub_of(Node()))
    hub._handlers, hub._labels = [33], iter(range(8, 9))  # type: ignore[assignment]

    async def aconnect(_host: str) -> Peer:
        return peer

    hub.node.aconnect = aconnect  # type: ignore[assignment]
    comm = CarefulComm(hub)
    opening = CarefulConnector(None)._open(hub, comm, "10.0.0.2", 40 + HANDLERS_PER_SERVICE)
    return hub, comm, asyncio.ensure_future(opening)


def test_connect__given_up_closes_all() -> None:
    """distributed gives up at its timeout; otherwise the other end would keep the comm for ever."""

    async def run() -> None:
        peer = Peer()
        hub, _comm, opening = connecting(peer)
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        assert peer.asked == [(40, Kind.OPEN, 1)]
        peer.answer.set_result(Result((0,) * 4, OPENED.pack(99, 5) + b"10.0.0.1", 0, 0))
        await asyncio.sleep(0.01)
        assert peer.asked[1:] == [(40, Kind.CLOSE, 99)]
        assert hub._tasks == set()

    asyncio.run(run())


@pytest.mark.parametrize("answer", [b"", b"HELLO", OPENED.pack(1, 2) + b"\xff"])
def test_connect__to_another_program_says_so(answer: bytes) -> None:
    async def run() -> None:
        peer = Peer()
        _hub, _comm, opening = connecting(peer)
        peer.answer.set_result(Result((0,) * 4, answer, len(answer), 0))
        with pytest.raises(CarefulError, match="the program that listens there is not Dask"):
            await opening

    asyncio.run(run())


def test_write__waits_for_a_reader_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise written data would grow without a bound."""
    monkeypatch.setattr(comm_module, "_OUTBOX_BYTES", 250_000)

    async def run() -> None:
        hub = comms_of(hub_of(Node()))
        hub.loop = asyncio.get_running_loop()
        comm, may_send = CarefulComm(hub), asyncio.Semaphore(0)
        sent: list[Any] = []

        async def send(message: Any) -> None:
            await may_send.acquire()
            sent.append(message)

        comm._send = send  # type: ignore[method-assign]
        written: list[int] = []

        async def write_all() -> None:
            for _ in range(10):
                written.append(await comm.write(os.urandom(100_000)))

        writing = asyncio.ensure_future(write_all())
        for _ in range(2000):
            await asyncio.sleep(0)
        # One message is under way and two wait; each that leaves lets one more call return.
        assert len(written) == 3
        for count in range(1, 5):
            may_send.release()
            while len(written) < 3 + count:
                await asyncio.sleep(0)
            assert len(sent) == count
        comm._end()  # nobody waits for an end that is gone
        with pytest.raises(CommClosedError):
            await writing

    asyncio.run(asyncio.wait_for(run(), 60))
