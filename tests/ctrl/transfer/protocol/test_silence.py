"""A peer that keeps its session but does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from careful._abi import ffi, lib, pack
from careful.daemon.client import Answer
from careful.errors import SilenceError
from careful.transfer.protocol.silence import Silence

LIMIT_S = 0.4
CLOSE = lib.CAREFUL_BLOCK_CLOSE


def answered(payload: bytes = b"") -> Answer:
    return Answer(0, 3, 0, 0, 0, (0, 0, 0, 0), payload)


class Daemon:
    """Our carefuld, and a peer that answers only the requests in `served`.

    Attributes:
        state: of the session.
        frames: received frames by time.
        probes: requests to close a handle.
    """

    def __init__(self, *served: int) -> None:
        self.served = served
        self.state = int(lib.CAREFUL_PEER_UP)
        self.frames: Callable[[], int] = lambda: 1
        self.probes = 0
        self.release = asyncio.Event()

    async def ask(self, op: int, payload: bytes = b"", **fields: Any) -> Answer:
        if op == lib.CAREFUL_IPC_PEER_INFO:
            info = {"state": self.state, "rx_frames": self.frames()}
            reported = ffi.new("struct careful_ipc_peer *", {"info": info})
            return answered(bytes(ffi.buffer(reported)))
        handler = fields.get("handler", 0)
        self.probes += handler == CLOSE
        if handler not in self.served:
            await self.release.wait()
        return answered()


def silence(daemon: Any) -> Silence:
    return Silence(daemon, 3, "h2", LIMIT_S)


async def list_project(one: Silence) -> Answer:
    handler = lib.CAREFUL_BLOCK_LIST
    return await one.ask(lib.CAREFUL_IPC_REQUEST, b"project", handler=handler)


def test_ask__no_answer_arrives() -> None:
    async def run() -> None:
        one = silence(Daemon())
        with pytest.raises(SilenceError, match=r"^h2: no answer to 'list project' in 400 ms"):
            await asyncio.wait_for(list_project(one), 100)
        with pytest.raises(SilenceError, match="list project"):  # at once
            await asyncio.wait_for(one.ask(lib.CAREFUL_IPC_GET), 100)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("op", "handler", "payload", "name"),
    [
        (lib.CAREFUL_IPC_GET, 0, b"", "read"),
        (lib.CAREFUL_IPC_GETS, 0, b"", "read"),
        (lib.CAREFUL_IPC_STORE, 0, b"", "write"),
        (lib.CAREFUL_IPC_REQUEST, lib.CAREFUL_BLOCK_COMMIT, bytes(40), "commit"),
        (
            lib.CAREFUL_IPC_REQUEST,
            lib.CAREFUL_BLOCK_OPEN,
            pack("careful_block_open", path_bytes=1) + b"a",
            "open a",
        ),
    ],
)
def test_ask__the_error_names_the_question(
    op: int, handler: int, payload: bytes, name: str
) -> None:
    async def run() -> None:
        with pytest.raises(SilenceError, match=f"'{name}'"):
            await asyncio.wait_for(silence(Daemon()).ask(op, payload, handler=handler), 100)

    asyncio.run(run())


async def outlasts(daemon: Daemon) -> None:
    """A request that is answered after four times the limit."""
    asked = asyncio.ensure_future(list_project(silence(daemon)))
    await asyncio.sleep(4 * LIMIT_S)
    assert not asked.done()
    daemon.release.set()
    assert not (await asked).status


def test_ask__a_server_that_works_is_not_silent() -> None:
    async def run() -> None:
        daemon = Daemon(CLOSE)
        await outlasts(daemon)
        assert daemon.probes >= 2

    asyncio.run(run())


def test_ask__a_server_that_answers_only_cheap_questions() -> None:
    async def run() -> None:
        daemon = Daemon(CLOSE)
        daemon.frames = lambda: 1 + daemon.probes  # a frame for each answer
        said = r"^h2: no answer to 'list project' in 4.8 s, though the server answers that it is"
        with pytest.raises(SilenceError, match=said):
            await asyncio.wait_for(list_project(silence(daemon)), 100)
        assert daemon.probes >= 2

    asyncio.run(run())


def test_ask__data_that_comes_slowly_is_no_silence() -> None:
    async def run() -> None:
        daemon = Daemon(CLOSE)
        daemon.frames = lambda: int(time.monotonic() * 40)
        asked = asyncio.ensure_future(silence(daemon).ask(lib.CAREFUL_IPC_GET))
        await asyncio.sleep(16 * LIMIT_S)
        assert not asked.done()
        daemon.release.set()
        assert not (await asked).status

    asyncio.run(run())


def test_ask__frames_that_come_are_no_silence() -> None:
    async def run() -> None:
        daemon = Daemon()
        daemon.frames = time.monotonic_ns
        await outlasts(daemon)
        assert not daemon.probes

    asyncio.run(run())


def test_ask__a_silent_link_is_for_carefuld_to_end() -> None:
    async def run() -> None:
        daemon = Daemon()
        daemon.state = int(lib.CAREFUL_PEER_STALLED)
        await outlasts(daemon)
        daemon.release.clear()
        with pytest.raises(SilenceError):
            await asyncio.wait_for(list_project(silence(daemon)), 100)

    asyncio.run(run())
