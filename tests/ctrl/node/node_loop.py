"""Cases of test_node.py: a node in a running event loop, or in the program's own loop."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time

import careful
from careful.node import Message, Node, RemoteError
from node_checks import HOST, WANTED, beside_ticks, fails, raises, regions_of, report
from node_handlers import Handlers
from node_server import NBYTES


async def loop_traffic(node: Node) -> None:
    """Awaits many requests, gets and stores at a time; other tasks run meanwhile."""
    async with beside_ticks(0):
        peer = await node.aconnect(HOST)
        assert await node.aconnect(HOST) is peer
        result = await peer.request(Handlers.ECHO, b"hello", (1, 2, 3))
        assert (result.payload, result.args) == (b"olleh", (0, 3, 2, 1))
        flying = [peer.request(Handlers.ECHO, number.to_bytes(4, "big")) for number in range(6000)]
        results = await asyncio.gather(*flying)
        swapped = [one.to_bytes(4, "little") for one in range(6000)]
        assert [one.payload for one in results] == swapped
    handles = (await peer.request(Handlers.REGIONS)).payload
    memory, blank = peer.region(handles[:16]), peer.region(handles[16:32])
    target = bytearray(NBYTES)
    assert (await memory.get(target)).nbytes == NBYTES
    assert target == bytes(WANTED)
    await asyncio.gather(*(blank.store(bytes([number]), number) for number in range(250)))
    back = bytearray(250)
    await blank.get(back)
    assert back == bytes(range(250))
    await asyncio.sleep(0.7)  # longer than any spinning
    assert (await peer.request(Handlers.ECHO, b"idle")).payload == b"eldi"
    assert node._engine.operations == set()


async def loop_failures(node: Node) -> None:
    """A failure is raised at the await; a cancelled task abandons its operation."""
    with fails(errno.EHOSTUNREACH, "nowhere"):
        await node.aconnect("nowhere")
    with fails(errno.ECONNREFUSED, "10.77.0.2:9"):
        await node.aconnect("10.77.0.2:9", timeout_s=30)
    with raises(TimeoutError, "10.77.0.77"):
        await node.aconnect("10.77.0.77", timeout_s=0.2)
    peer = await node.aconnect(HOST)
    with raises(RemoteError, "ValueError: a handler's own mistake"):
        await peer.request(Handlers.FAIL)
    late = peer.request(Handlers.LATE, args=(0,))
    with raises(TimeoutError):
        await asyncio.wait_for(late, 0.05)
    waiting = asyncio.ensure_future(late)
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert waiting.cancelled()
    assert not late.done()
    assert not late.cancelled()
    await peer.request(Handlers.RELEASE)
    assert (await late).payload == b"late"
    other = peer.request(Handlers.LATE, args=(0,))
    waiting = asyncio.ensure_future(other)
    await asyncio.sleep(0.01)
    node.close()
    with fails(errno.ECANCELED, HOST):
        await waiting
    async with careful.open("eth1") as again:
        await (await again.aconnect(HOST)).request(Handlers.RELEASE)


async def loop_handlers(node: Node) -> None:
    """A handler may be a coroutine function; its result is the answer."""
    peer = await node.aconnect(HOST)
    await peer.request(Handlers.REPORT)
    reported: list[str] = []
    node.on_error = lambda error, where: reported.append(f"{type(error).__name__} {where}")

    async def called(message: Message) -> bytes:
        asked = await message.peer.request(Handlers.ECHO, message.payload)
        if message.payload == b"raise":
            raise LookupError("in the coroutine")
        if message.payload == b"large":
            return bytes(message.peer.payload_bytes + 1)
        return b"it said " + asked.payload

    node.handle(Handlers.CALLED, called)
    events: list[object] = []
    for payload in (b"abc", b"raise", b"large"):
        peer.send(Handlers.CALL_BACK, payload)
        before = len(events)
        while len(events) == before:
            events += json.loads((await peer.request(Handlers.REPORT)).payload)
    assert events[0] == "it said cba"
    name, number, text = events[1]  # type: ignore[misc]
    assert (name, number) == ("called", errno.EIO)
    assert text.endswith("its handler failed: LookupError: in the coroutine")
    assert events[2][1] == errno.EMSGSIZE  # type: ignore[index]
    assert [one.split(", asked by ")[0] for one in reported] == [
        f"LookupError handler {int(Handlers.CALLED)}",
        f"CarefulError handler {int(Handlers.CALLED)}",
    ]


async def loop_interface_gone(node: Node) -> None:
    peer = await node.aconnect(HOST)
    flying = peer.request(Handlers.LATE, args=(0,))
    serving = asyncio.create_task(node.serve_forever())
    await asyncio.sleep(0.01)
    subprocess.run(["ip", "link", "delete", "eth1"], check=True)
    with fails(errno.ENODEV, "eth1", "the interface is gone"):
        await serving
    with fails(errno.ENODEV, HOST, "the interface is gone"):
        await flying
    with fails(errno.ENODEV):
        await peer.request(Handlers.ECHO)


async def loop_peer_killed(node: Node) -> None:
    """Timers work without frames."""
    peer = await node.aconnect(HOST)
    pid = int(sys.argv[3])
    os.kill(pid, signal.SIGSTOP)
    flying = peer.request(Handlers.ECHO)
    await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    with raises(ConnectionRefusedError, HOST):
        await flying


def loop_away(node: Node) -> None:
    """A loop that was blocked until its peer gave up continues."""

    async def run() -> None:
        async with node:
            peer = await node.aconnect(HOST)
            assert (await peer.request(Handlers.ECHO, b"first")).payload == b"tsrif"
            time.sleep(2.5)
            assert (await peer.request(Handlers.ECHO, b"again")).payload == b"niaga"

    asyncio.run(run())


def own_loop(node: Node) -> None:
    """poll() whenever a descriptor of wait_fds() is readable, or its time is over."""
    peer = node.connect(HOST)
    flying = [peer.request(Handlers.ECHO, bytes([number])) for number in range(200)]
    end = time.monotonic() + 30
    while not all(one.done() for one in flying):
        assert time.monotonic() < end
        fds, timeout_s = node.wait_fds()
        assert fds
        assert 0 < timeout_s <= 1
        poller = select.poll()
        for fd in fds:
            poller.register(fd, select.POLLIN)
        poller.poll(timeout_s * 1000)
        node.poll()
    assert [one.result().payload for one in flying] == [bytes([number]) for number in range(200)]
    assert regions_of(peer)[0].nbytes == NBYTES
    assert report(peer) == []


def coroutine_without_loop(node: Node) -> None:
    """A coroutine handler cannot run without a loop: the client and the program get an error."""
    peer = node.connect(HOST)
    reported: list[Exception] = []
    node.on_error = lambda error, where: reported.append(error)

    async def called(message: Message) -> bytes:
        return b"never"

    node.handle(Handlers.CALLED, called)
    peer.send(Handlers.CALL_BACK)
    while not reported:
        node.wait(30)
    assert isinstance(reported[0], TypeError)
    # A late answer to an earlier client is only text.
    while not (failed := [one for one in report(peer) if isinstance(one, list)]):
        pass
    assert failed[0][1] == errno.EIO
    assert "event loop" in failed[0][2]
