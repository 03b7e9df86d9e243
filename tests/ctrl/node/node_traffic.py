"""Cases of test_node.py: traffic between the programs, and access rights."""

from __future__ import annotations

import errno
import gc
import io
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
import xxhash
from careful.node import FileRange, Message, Node, Operation, RemoteError
from node_checks import HOST, WANTED, descriptors, fails, raises, regions_of, report, said_by_log
from node_handlers import Handlers
from node_server import BLANK_BYTES, NBYTES


def built(node: Node) -> None:
    """Messages in send buffers: each ends once, and not while a view exists."""
    peer = node.connect(HOST)
    message = node.outgoing()
    assert len(message.payload) >= peer.payload_bytes
    message.payload[:5] = b"hello"
    with raises(ValueError, "bytes"):
        message.send(peer, Handlers.ECHO, len(message.payload) + 1)
    result = message.send(peer, Handlers.ECHO, 5, (1, 2)).result(30)
    assert (result.payload, result.args[-2:]) == (b"olleh", (2, 1))
    for again in (message.free, lambda: message.send(peer, Handlers.ECHO)):
        with raises(RuntimeError, "sent or freed"):
            again()
    message = node.outgoing()
    array = np.frombuffer(message.payload, np.uint8)[:4]
    array[:] = 1, 2, 3, 4
    with raises(BufferError, "release it"):
        message.send(peer, Handlers.ECHO, 4)
    with raises(BufferError, "release it"):
        node.close()
    del array
    assert message.send(peer, Handlers.ECHO, 4).result(30).payload == bytes((4, 3, 2, 1))
    message = node.outgoing()
    part = message.payload[:4]
    with raises(BufferError, "release it"):
        message.free()
    del message
    with raises(BufferError, "release it"):
        node.close()
    part[:] = b"mine"
    del part
    for wrong in ((1.0,), (Handlers.ECHO, 2.0), (Handlers.ECHO, 2, (3.0,))):
        message = node.outgoing()
        with raises(TypeError):
            message.send(peer, *wrong)  # type: ignore[arg-type]
        message.free()  # it is still there
    with fails(errno.EMSGSIZE, HOST, "payload_bytes"):
        message = node.outgoing()
        message.send(peer, Handlers.ECHO)
        raise AssertionError(peer.payload_bytes)


def built_share(node: Node) -> None:
    """Messages hold at most a quarter of the send buffers; dropped ones are freed."""
    peer = node.connect(HOST)
    for _ in range(3):
        held = []
        with fails(errno.EAGAIN, "eth1", "send buffers"):
            while True:
                held.append(node.outgoing())
        assert 16 < len(held) <= 512
        assert peer.request(Handlers.ECHO, b"ab").result(30).payload == b"ba"
        operations = [message.send(peer, Handlers.ECHO, 1) for message in held[:16]]
        for operation in operations:
            operation.result(30)
        held[20].free()
        held.clear()


def request(node: Node) -> None:
    """Payload and args there and back, many at a time, and refusals."""
    info = node.info()
    assert (info["ifname"], info["peers_max"], info["wait"]) == ("eth1", 2, "adaptive")
    assert info["window_buffers"] == info["receive_buffers"] // 2
    peer = node.connect(HOST)
    assert (peer.state, peer.name) == ("up", HOST)
    result = peer.request(Handlers.ECHO, b"hello", (1, 2, 0xFFFFFFFF)).result(30)
    assert (result.payload, result.args) == (b"olleh", (0, 0xFFFFFFFF, 2, 1))
    ended: list[Operation] = []
    flying = [peer.request(Handlers.ECHO, number.to_bytes(4, "big")) for number in range(500)]
    for operation in flying:
        operation.add_done_callback(ended.append)
    assert not flying[-1].done()
    assert flying[-1].running()
    assert not flying[-1].cancel()
    with raises(TimeoutError, HOST):
        flying[-1].result(0)
    for number, operation in enumerate(flying):
        assert operation.result(30).payload == number.to_bytes(4, "little")
    assert ended == flying
    flying[0].add_done_callback(ended.append)
    assert ended == [*flying, flying[0]]
    assert flying[0].exception() is None
    most = peer.payload_bytes
    assert len(peer.request(Handlers.ECHO, np.zeros(most, np.uint8)).result(30).payload) == most
    with fails(errno.EMSGSIZE, HOST, "payload_bytes"):
        peer.request(Handlers.ECHO, bytes(most + 1))
    with fails(errno.ENOSYS, HOST, "no handler"):
        peer.request(Handlers.NONE).result(30)
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
    """A handler's exception fails the client's request, and goes to on_error here."""
    peer = node.connect(HOST)
    report(peer)
    with fails(errno.ENOENT, HOST, "its handler failed: FileNotFoundError: ", "no such thing"):
        peer.request(Handlers.FAIL, args=(1,)).result(30)
    failed = peer.request(Handlers.FAIL, args=(0,)).exception(30)
    assert isinstance(failed, RemoteError)
    assert (failed.errno, failed.reply.payload) == (
        errno.EIO,
        b"ValueError: a handler's own mistake",
    )
    with fails(errno.EDOM, HOST, "its handler failed: why") as caught:
        peer.request(Handlers.REFUSE).result(30)
    assert isinstance(caught[0], RemoteError)
    assert (caught[0].reply.payload, caught[0].reply.args) == (b"why", (4, 3, 0, 0))
    with fails(errno.EMSGSIZE, HOST, "too large for one frame"):
        peer.request(Handlers.TOO_LARGE).result(30)
    events = report(peer)
    assert [name for name, *_ in events] == [
        "FileNotFoundError",
        "ValueError",
        "CarefulError",
    ]
    assert events[0][2].startswith(f"handler {int(Handlers.FAIL)}, asked by ")
    assert peer.request(Handlers.ECHO, b"goes on").result(30).payload == b"no seog"

    def called(message: Message) -> bytes:
        if message.payload == b"raise":
            raise ZeroDivisionError("in the handler")
        if message.payload == b"exit":
            raise SystemExit(3)
        return b"called with " + message.payload

    node.handle(Handlers.CALLED, called)
    with said_by_log() as log:
        peer.send(Handlers.CALL_BACK, b"raise")
        while not log.getvalue():
            node.wait(30)
    assert "careful on eth1: handler 10, asked by 10.77.0.2" in log.getvalue() or ":" in HOST
    assert "ZeroDivisionError: in the handler" in log.getvalue()
    peer.send(Handlers.CALL_BACK, b"exit")
    with raises(SystemExit):
        while True:
            node.wait(30)
    peer.send(Handlers.CALL_BACK, b"care")
    events = []
    while len(events) < 3:
        events += report(peer)
    assert [one[1] for one in events[:2]] == [errno.EIO, errno.EIO]
    assert "ZeroDivisionError: in the handler" in events[0][2]
    assert events[2] == "called with care"

    def reraise(error: Exception, where: str) -> None:
        raise error

    def then(operation: Operation) -> None:
        raise KeyError(operation.result().payload)

    node.on_error = reraise
    operation = peer.request(Handlers.ECHO, b"x")
    operation.add_done_callback(then)
    with raises(KeyError, "x"):
        operation.result(30)
    assert operation.result().payload == b"x"
    node.handle(Handlers.CALLED, None)
    peer.send(Handlers.CALL_BACK, b"care")
    while not (events := report(peer)):
        pass
    assert [one[1] for one in events] == [errno.ENOSYS]


def full(node: Node) -> None:
    """Operations beyond the room wait, and all are done in order."""
    peer = node.connect(HOST)
    _, blank, _ = regions_of(peer)
    ended: list[bytes] = []
    flying = []
    for number in range(6000):
        flying.append(peer.request(Handlers.ECHO, number.to_bytes(4, "big")))
        flying[-1].add_done_callback(lambda one: ended.append(one.result().payload))
    stores = [blank.store(bytes([number % 256]), number) for number in range(1000)]
    assert node._engine.operations
    for operation in [*flying, *stores]:
        operation.result(30)
    assert ended == [number.to_bytes(4, "little") for number in range(6000)]
    back = bytearray(1000)
    blank.get(back).result(30)
    assert back == bytes(number % 256 for number in range(1000))
    assert node._engine.operations == set()

    def burst(message: Message) -> None:  # a handler cannot wait, so the node sends it later
        for number in range(2000):
            flying.append(peer.request(Handlers.ECHO, number.to_bytes(4, "big")))

    flying.clear()
    node.handle(Handlers.CALLED, burst)
    peer.send(Handlers.CALL_BACK)
    while len(flying) < 2000:
        node.wait(30)
    for number, operation in enumerate(flying):
        assert operation.result(30).payload == number.to_bytes(4, "little")


def late_reply(node: Node) -> None:
    """A handler leaves the answer to another one."""
    peer = node.connect(HOST)
    report(peer)
    flying = [peer.request(Handlers.LATE, args=(0,)) for _ in range(3)]
    failed = peer.request(Handlers.LATE, args=(1,))
    with fails(errno.EIO, HOST):
        failed.result(30)
    with fails(errno.ETIMEDOUT, HOST):
        flying[0].result(0.2)
    assert not any(one.done() for one in flying)
    peer.request(Handlers.RELEASE).result(30)
    results = [one.result(30) for one in flying]
    assert [(one.payload, one.args[0]) for one in results] == [(b"late", k) for k in range(3)]
    assert [name for name, *_ in report(peer)] == ["ValueError"]


def get(node: Node) -> None:
    """From memory and from a file, to memory, arrays and files."""
    peer = node.connect(HOST)
    memory, _, file = regions_of(peer)
    for region in (memory, file):
        target = bytearray(NBYTES)
        result = region.get(target).result(30)
        assert (result.nbytes, target) == (NBYTES, bytes(WANTED))
        assert result.digest == xxhash.xxh3_64_intdigest(target)
    array = np.zeros(1000, np.uint8)
    assert memory.get(array[100:900], offset=5000, digest=False).result(30).digest == 0
    assert (array[100:900] == WANTED[5000:5800]).all()
    assert not array[:100].any()
    assert not array[900:].any()
    fd = os.memfd_create("target")
    with os.fdopen(fd, "rb+") as target_file:
        operation = memory.get(FileRange(target_file, 7, 1000), offset=1)
        operation.result(30)
        assert os.pread(fd, 2000, 0) == bytes(7) + bytes(WANTED[1:1001])
    with mmap.mmap(-1, 4096) as area:
        memory.get(area).result(30)
        assert area[:] == bytes(WANTED[:4096])
    assert memory.get(bytearray()).result(30).nbytes == 0
    with fails(errno.ERANGE, HOST, "beyond"):
        memory.get(bytearray(10), offset=NBYTES - 9).result(30)
    with fails(errno.ENOENT, HOST, "no such region"):
        peer.region(memory.key ^ 0x80000000).get(bytearray(10)).result(30)
    with raises(ValueError):
        memory.get(np.zeros((10, 10), np.uint8)[:, :5])
    with raises(BufferError):
        memory.get(b"read-only")
    assert (memory.peer, memory.access, memory.nbytes) == (peer, "r", NBYTES)
    for wrong in (b"", b"x" * 15, bytes(16)):
        with raises(ValueError, "handle"):
            peer.region(wrong)


def store(node: Node) -> None:
    """Stores into an array and into a file; a handler is called."""
    peer = node.connect(HOST)
    report(peer)
    read_only, blank, file = regions_of(peer)
    source = np.random.default_rng(5).integers(0, 65536, 300_000, np.uint16)
    result = blank.store(source, handler=Handlers.STORED, args=(7, 8)).result(30)
    assert result.nbytes == BLANK_BYTES
    assert result.digest == xxhash.xxh3_64_intdigest(source)
    back = np.empty_like(source)
    blank.get(back).result(30)
    assert (back == source).all()
    blank.store(b"in the middle", 1000, handler=Handlers.STORED, digest=False).result(30)
    blank.get(back).result(30)
    assert back.tobytes()[1000:1013] == b"in the middle"
    assert back.tobytes()[1013:] == source.tobytes()[1013:]
    assert report(peer) == [[1, 0, BLANK_BYTES, 7, 8, 0, 0], [1, 1000, 13, 0, 0, 0, 0]]

    with Path(__file__).open("rb") as ours:
        text = Path(__file__).read_bytes()
        assert file.store(ours, 100).result(30).nbytes == len(text)
    got = bytearray(len(text) + 1)
    file.get(got, 99).result(30)
    assert got == bytes(WANTED[99:100]) + text
    file.store(WANTED[100 : 100 + len(text)], 100).result(30)  # for the next client
    with fails(errno.EACCES, HOST, "does not allow"):
        read_only.store(b"x").result(30)
    with fails(errno.ENOSYS, HOST, "no handler", "in place"):
        blank.store(b"THERE", 1000, handler=Handlers.NONE).result(30)
    blank.get(back).result(30)
    assert back.tobytes()[1000:1013] == b"THEREe middle"
    assert report(peer) == []
    assert node.counters()["lost_frames"] == 0


def regions(node: Node) -> None:
    """Access, holders and removal of our regions; get() and store() test the peer's."""
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
    """Memory in use by C is neither freed nor resized, and is released afterwards."""
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

    memory = regions_of(peer)[0]
    target = np.zeros(NBYTES, np.uint8)
    alive, operation = weakref.ref(target), memory.get(target)
    del target
    gc.collect()
    assert alive() is not None
    operation.result(30)
    gc.collect()
    assert alive() is None
    into = bytearray(100)
    operation = memory.get(into)
    with raises(BufferError):
        into.clear()
    del operation  # the node holds it
    gc.collect()
    while into != bytes(WANTED[:100]):
        node.wait(30)
    while node._engine.operations:
        node.wait(30)
    into.clear()
