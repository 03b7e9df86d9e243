"""Cases of test_node.py: what goes from one program to the other, and where it may."""

from __future__ import annotations

import errno
import gc
import io
import mmap
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from careful.node import FileRange, Message, Node, Operation
from node_checks import HOST, WANTED, descriptors, fails, keys, raises, report
from node_handlers import Handlers
from node_server import BLANK_BYTES, NBYTES


def request(node: Node) -> None:
    """Payload and args there and back, many at a time, and what is refused."""
    info = node.info()
    assert (info["ifname"], info["peers_max"], info["wait"]) == ("eth1", 2, "adaptive")
    assert info["window_buffers"] == info["receive_buffers"] // 2
    peer = node.connect(HOST)
    assert (peer.state, peer.name) == ("up", HOST)
    result = peer.request(Handlers.ECHO, b"hello", (1, 2, 0xFFFFFFFF)).wait(30)
    assert (result.payload, result.args) == (b"olleh", (0, 0xFFFFFFFF, 2, 1))
    ended: list[Operation] = []
    flying = [
        peer.request(Handlers.ECHO, number.to_bytes(4, "big"), then=ended.append)
        for number in range(500)
    ]
    assert not flying[-1].done
    with fails(errno.EINPROGRESS, HOST):
        flying[-1].result()
    for number, operation in enumerate(flying):
        assert operation.wait(30).payload == number.to_bytes(4, "little")
    assert ended == flying
    most = peer.payload_bytes
    assert len(peer.request(Handlers.ECHO, np.zeros(most, np.uint8)).wait(30).payload) == most
    with fails(errno.EMSGSIZE, HOST, "payload_bytes"):
        peer.request(Handlers.ECHO, bytes(most + 1))
    with fails(errno.ENOSYS, HOST, "no handler"):
        peer.request(Handlers.NONE).wait(30)
    with raises(ValueError, "4 args"):
        peer.request(Handlers.ECHO, args=(1, 2, 3, 4, 5))
    with raises(OverflowError):
        peer.request(Handlers.ECHO, args=(1 << 32,))
    with raises(TypeError, "encode it"):
        peer.request(Handlers.ECHO, "text")
    for number in (-1, 256):
        with raises(ValueError, "0 to 255"):
            peer.request(number)
    assert node.counters()["lost_frames"] == 0
    assert node._engine.operations == set()


def handler_errors(node: Node) -> None:
    """What a handler raises fails the request there, and is raised where it ran."""
    peer = node.connect(HOST)
    report(peer)
    with fails(errno.ENOENT, HOST):
        peer.request(Handlers.FAIL, args=(1,)).wait(30)
    with fails(errno.EIO, HOST):
        peer.request(Handlers.FAIL, args=(0,)).wait(30)
    with fails(errno.EDOM, HOST):
        peer.request(Handlers.REFUSE).wait(30)
    with fails(errno.EMSGSIZE, HOST):
        peer.request(Handlers.TOO_LARGE).wait(30)
    kinds = [name for name, _ in report(peer)]
    assert kinds == ["FileNotFoundError", "ValueError", "CarefulError"]

    def called(message: Message) -> bytes:
        if message.payload == b"raise":
            raise ZeroDivisionError("in the handler")
        return b"called with " + message.payload

    node.handle(Handlers.CALLED, called)
    peer.send(Handlers.CALL_BACK, b"raise")
    with raises(ZeroDivisionError, "in the handler"):
        while True:
            node.wait(30)
    peer.send(Handlers.CALL_BACK, b"care")
    events: list[Any] = []
    while len(events) < 2:
        events += report(peer)
    assert events == [["called", errno.EIO], "called with care"]

    def then(operation: Operation) -> None:
        raise KeyError(operation.result().payload)

    operation = peer.request(Handlers.ECHO, b"x", then=then)
    with raises(KeyError, "x"):
        operation.wait(30)
    assert operation.result().payload == b"x"
    node.handle(Handlers.CALLED, None)
    peer.send(Handlers.CALL_BACK, b"care")
    while not (events := report(peer)):
        pass
    assert events == [["called", errno.ENOSYS]]


def late_reply(node: Node) -> None:
    """A handler leaves the answer open; another one gives it."""
    peer = node.connect(HOST)
    report(peer)
    flying = [peer.request(Handlers.LATE, args=(0,)) for _ in range(3)]
    failed = peer.request(Handlers.LATE, args=(1,))
    with fails(errno.EIO, HOST):
        failed.wait(30)
    with fails(errno.ETIMEDOUT, HOST):
        flying[0].wait(0.2)
    assert not any(one.done for one in flying)
    peer.request(Handlers.RELEASE).wait(30)
    results = [one.wait(30) for one in flying]
    assert [(one.payload, one.args[0]) for one in results] == [(b"late", k) for k in range(3)]
    assert [name for name, _ in report(peer)] == ["ValueError"]


def get(node: Node) -> None:
    """From memory and from a file, to memory, arrays and files."""
    peer = node.connect(HOST)
    memory, _, file = keys(peer)
    for key in (memory, file):
        target = bytearray(NBYTES)
        result = peer.get(key, target).wait(30)
        assert (result.nbytes, target) == (NBYTES, bytes(WANTED))
        assert result.digest == xxhash.xxh3_64_intdigest(target)
    array = np.zeros(1000, np.uint8)
    assert peer.get(memory, array[100:900], offset=5000, digest=False).wait(30).digest == 0
    assert (array[100:900] == WANTED[5000:5800]).all()
    assert not array[:100].any()
    assert not array[900:].any()
    fd = os.memfd_create("target")
    with os.fdopen(fd, "rb+") as target_file:
        operation = peer.get(memory, FileRange(target_file, 7, 1000), offset=1)
        operation.wait(30)
        assert os.pread(fd, 2000, 0) == bytes(7) + bytes(WANTED[1:1001])
    with mmap.mmap(-1, 4096) as area:
        peer.get(memory, area).wait(30)
        assert area[:] == bytes(WANTED[:4096])
    assert peer.get(memory, bytearray()).wait(30).nbytes == 0
    with fails(errno.ERANGE, HOST, "beyond"):
        peer.get(memory, bytearray(10), offset=NBYTES - 9).wait(30)
    with fails(errno.ENOENT, HOST, "no such region"):
        peer.get(memory ^ 0x80000000, bytearray(10)).wait(30)
    with raises(ValueError):
        peer.get(memory, np.zeros((10, 10), np.uint8)[:, :5])
    with raises(BufferError):
        peer.get(memory, b"read-only")


def store(node: Node) -> None:
    """Into an array and into a file; a handler hears of it."""
    peer = node.connect(HOST)
    report(peer)
    read_only, blank, file = keys(peer)
    source = np.random.default_rng(5).integers(0, 65536, 300_000, np.uint16)
    result = peer.store(blank, source, handler=Handlers.STORED, args=(7, 8)).wait(30)
    assert result.nbytes == BLANK_BYTES
    assert result.digest == xxhash.xxh3_64_intdigest(source)
    back = np.empty_like(source)
    peer.get(blank, back).wait(30)
    assert (back == source).all()
    peer.store(blank, b"in the middle", 1000, handler=Handlers.STORED, digest=False).wait(30)
    peer.get(blank, back).wait(30)
    assert back.tobytes()[1000:1013] == b"in the middle"
    assert back.tobytes()[1013:] == source.tobytes()[1013:]
    assert report(peer) == [[1, 0, BLANK_BYTES, 7, 8, 0, 0], [1, 1000, 13, 0, 0, 0, 0]]

    with Path(__file__).open("rb") as ours:
        text = Path(__file__).read_bytes()
        assert peer.store(file, ours, 100).wait(30).nbytes == len(text)
    got = bytearray(len(text) + 1)
    peer.get(file, got, 99).wait(30)
    assert got == bytes(WANTED[99:100]) + text
    peer.store(file, WANTED[100 : 100 + len(text)], 100).wait(30)  # for whoever comes next
    with fails(errno.EACCES, HOST, "does not allow"):
        peer.store(read_only, b"x").wait(30)
    with fails(errno.ENOSYS, HOST, "no handler", "in place"):
        peer.store(blank, b"THERE", 1000, handler=Handlers.NONE).wait(30)
    peer.get(blank, back).wait(30)
    assert back.tobytes()[1000:1013] == b"THEREe middle"
    assert report(peer) == []
    assert node.counters()["lost_frames"] == 0


def regions(node: Node) -> None:
    """The peer's view of ours is tested there; here: access, holders, removal."""
    with raises(ValueError, "access"):
        node.register(bytearray(1), "x")
    with raises(BufferError):
        node.register(b"read-only", "w")
    before = descriptors()
    with Path(__file__).open("rb") as ours, node.register(FileRange(ours, 0, 10), "r") as region:
        assert region.nbytes == 10
        assert descriptors() == before + 2
    assert region.memory is None
    assert descriptors() == before
    region.remove()  # again: no harm
    with Path(__file__).open("rb") as ours:
        with raises(ValueError, "negative"):
            node.register(FileRange(ours, -1, 10), "r")
        with raises(io.UnsupportedOperation, "writing"):
            node.register(ours, "w")
        with Path("/dev/null").open("rb") as null, raises(io.UnsupportedOperation, "regular"):
            node.register(FileRange(null, 0, 10), "r")
    with raises(TypeError, "not str"):
        node.register("text")
    with raises(TypeError, "cannot be called"):
        node.handle(1, 5)  # type: ignore[arg-type]
    assert descriptors() == before


def memory_is_held(node: Node) -> None:
    """What C may touch is neither freed nor resized, and let go of afterwards."""
    peer = node.connect(HOST)
    array = np.zeros(1000, np.uint8)
    alive, region = weakref.ref(array), node.register(array)
    del array
    gc.collect()
    assert alive() is not None
    assert region.memory is alive()
    region.remove()
    gc.collect()
    assert alive() is None

    data = bytearray(1000)
    region = node.register(data)
    with raises(BufferError):
        data.extend(b"more")
    region.remove()
    data.extend(b"more")

    memory = keys(peer)[0]
    target = np.zeros(NBYTES, np.uint8)
    alive, operation = weakref.ref(target), peer.get(memory, target)
    del target
    gc.collect()
    assert alive() is not None
    operation.wait(30)
    gc.collect()
    assert alive() is None
    into = bytearray(100)
    operation = peer.get(memory, into)
    with raises(BufferError):
        into.clear()
    del operation  # the node holds it
    gc.collect()
    while into != bytes(WANTED[:100]):
        node.wait(30)
    while node._engine.operations:
        node.wait(30)
    into.clear()
