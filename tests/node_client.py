"""What test_node.py runs on a host: CASE [ADDRESS]. Fails with an AssertionError."""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import careful
import numpy as np
import xxhash
from careful.errors import CarefulError
from careful.node import FileRange, Message, Node, Operation, Peer
from node_handlers import Handlers
from node_server import NBYTES

WANTED = np.arange(NBYTES, dtype=np.uint8)
HOST = sys.argv[2] if len(sys.argv) > 2 else "h2"
BLANK_BYTES = 600_000


@contextmanager
def raises(kind: type[BaseException], *said: str) -> Iterator[list[Any]]:
    """What stands in it raises this, and says that; the list gets it."""
    caught: list[Any] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"no {kind.__name__}"
    assert all(one in str(caught[0]) for one in said), repr(caught[0])


@contextmanager
def fails(number: int, *said: str) -> Iterator[None]:
    """What stands in it raises CarefulError with this errno, and says that."""
    with raises(CarefulError, *said) as caught:
        yield
    assert isinstance(caught[0], OSError)
    assert caught[0].errno == number, repr(caught[0])


def keys(peer: Peer) -> tuple[int, ...]:
    return peer.request(Handlers.KEYS).wait(5).args[:3]


def report(peer: Peer) -> list[Any]:
    found: list[Any] = json.loads(peer.request(Handlers.REPORT).wait(5).payload)
    return found


def request(node: Node) -> None:
    """Payload and args there and back, many at a time, and what is refused."""
    peer = node.connect(HOST)
    assert (peer.state, peer.name) == ("up", HOST)
    result = peer.request(Handlers.ECHO, b"hello", (1, 2, 0xFFFFFFFF)).wait(5)
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
        assert operation.wait(5).payload == number.to_bytes(4, "little")
    assert ended == flying
    most = peer.payload_bytes
    assert len(peer.request(Handlers.ECHO, np.zeros(most, np.uint8)).wait(5).payload) == most
    with fails(errno.EMSGSIZE, HOST, "payload_bytes"):
        peer.request(Handlers.ECHO, bytes(most + 1))
    with fails(errno.ENOSYS, HOST, "no handler"):
        peer.request(Handlers.NONE).wait(5)
    with raises(ValueError, "4 args"):
        peer.request(Handlers.ECHO, args=(1, 2, 3, 4, 5))
    with raises(OverflowError):
        peer.request(Handlers.ECHO, args=(1 << 32,))
    with raises(TypeError):
        peer.request(Handlers.ECHO, "text")
    assert node.counters()["lost_frames"] == 0
    assert node._engine.operations == set()


def handler_errors(node: Node) -> None:
    """What a handler raises fails the request there, and is raised where it ran."""
    peer = node.connect(HOST)
    report(peer)
    with fails(errno.ENOENT, HOST):
        peer.request(Handlers.FAIL, args=(1,)).wait(5)
    with fails(errno.EIO, HOST):
        peer.request(Handlers.FAIL, args=(0,)).wait(5)
    with fails(errno.EDOM, HOST):
        peer.request(Handlers.REFUSE).wait(5)
    with fails(errno.EMSGSIZE, HOST):
        peer.request(Handlers.TOO_LARGE).wait(5)
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
            node.wait(5)
    peer.send(Handlers.CALL_BACK, b"care")
    events: list[Any] = []
    while len(events) < 2:
        events += report(peer)
    assert events == [["called", errno.EIO], "called with care"]

    def then(operation: Operation) -> None:
        raise KeyError(operation.result().payload)

    operation = peer.request(Handlers.ECHO, b"x", then=then)
    with raises(KeyError, "x"):
        operation.wait(5)
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
        failed.wait(5)
    with fails(errno.ETIMEDOUT, HOST):
        flying[0].wait(0.2)
    assert not any(one.done for one in flying)
    peer.request(Handlers.RELEASE).wait(5)
    results = [one.wait(5) for one in flying]
    assert [(one.payload, one.args[0]) for one in results] == [(b"late", k) for k in range(3)]
    assert [name for name, _ in report(peer)] == ["ValueError"]


def get(node: Node) -> None:
    """From memory and from a file, to memory, arrays and files."""
    peer = node.connect(HOST)
    memory, _, file = keys(peer)
    for key in (memory, file):
        target = bytearray(NBYTES)
        result = peer.get(key, target).wait(5)
        assert (result.nbytes, target) == (NBYTES, bytes(WANTED))
        assert result.digest == xxhash.xxh3_64_intdigest(target)
    array = np.zeros(1000, np.uint8)
    assert peer.get(memory, array[100:900], offset=5000, digest=False).wait(5).digest == 0
    assert (array[100:900] == WANTED[5000:5800]).all()
    assert not array[:100].any()
    assert not array[900:].any()
    fd = os.memfd_create("target")
    with os.fdopen(fd, "rb+") as target_file:
        operation = peer.get(memory, FileRange(target_file, 7, 1000), offset=1)
        operation.wait(5)
        assert os.pread(fd, 2000, 0) == bytes(7) + bytes(WANTED[1:1001])
    with mmap.mmap(-1, 4096) as area:
        peer.get(memory, area).wait(5)
        assert area[:] == bytes(WANTED[:4096])
    assert peer.get(memory, bytearray()).wait(5).nbytes == 0
    with fails(errno.ERANGE, HOST, "beyond"):
        peer.get(memory, bytearray(10), offset=NBYTES - 9).wait(5)
    with fails(errno.ENOENT, HOST, "no such region"):
        peer.get(memory ^ 0x80000000, bytearray(10)).wait(5)
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
    result = peer.store(blank, source, handler=Handlers.STORED, args=(7, 8)).wait(5)
    assert result.nbytes == BLANK_BYTES
    assert result.digest == xxhash.xxh3_64_intdigest(source)
    back = np.empty_like(source)
    peer.get(blank, back).wait(5)
    assert (back == source).all()
    peer.store(blank, b"in the middle", 1000, handler=Handlers.STORED, digest=False).wait(5)
    peer.get(blank, back).wait(5)
    assert back.tobytes()[1000:1013] == b"in the middle"
    assert back.tobytes()[1013:] == source.tobytes()[1013:]
    assert report(peer) == [[1, 0, BLANK_BYTES, 7, 8, 0, 0], [1, 1000, 13, 0, 0, 0, 0]]

    with Path(__file__).open("rb") as ours:
        text = Path(__file__).read_bytes()
        assert peer.store(file, ours, 100).wait(5).nbytes == len(text)
    got = bytearray(len(text) + 1)
    peer.get(file, got, 99).wait(5)
    assert got == bytes(WANTED[99:100]) + text
    peer.store(file, WANTED[100 : 100 + len(text)], 100).wait(5)  # for whoever comes next
    with fails(errno.EACCES, HOST, "does not allow"):
        peer.store(read_only, b"x").wait(5)
    assert report(peer) == []
    assert node.counters()["lost_frames"] == 0


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def regions(node: Node) -> None:
    """The peer's view of ours is tested there; here: access, holders, removal."""
    with raises(ValueError, "access"):
        node.register(bytearray(1), "x")
    with raises(BufferError):
        node.register(b"read-only", "w")
    before = descriptors()
    with node.register(FileRange(sys.stdin.fileno(), 0, 10), "r") as region:
        assert region.nbytes == 10
        assert descriptors() == before + 1
    assert region.memory is None
    assert descriptors() == before
    region.remove()  # again: no harm
    with raises(ValueError, "negative"):
        node.register(FileRange(0, -1, 10))


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
    operation.wait(5)
    gc.collect()
    assert alive() is None
    into = bytearray(100)
    operation = peer.get(memory, into)
    with raises(BufferError):
        into.clear()
    del operation  # the node holds it
    gc.collect()
    while into != bytes(WANTED[:100]):
        node.wait(5)
    while node._engine.operations:
        node.wait(5)
    into.clear()


def peers(node: Node) -> None:
    """Names, and hosts that are not there."""
    with fails(errno.EHOSTUNREACH, "nowhere"):
        node.connect("nowhere")
    with fails(errno.ECONNREFUSED, "10.77.0.2:9"):
        node.connect("10.77.0.2:9")
    began = time.monotonic()
    with raises(CarefulError):
        node.connect("10.77.0.77", timeout_s=0.5)
    assert time.monotonic() - began < 10
    peer = node.connect(HOST)
    assert node.connect(HOST) is peer
    assert peer in node.peers
    assert str(peer.address) == "10.77.0.2:51966"
    operation = peer.request(Handlers.LATE, args=(0,))
    peer.close()
    with fails(errno.ECONNRESET, HOST):
        operation.wait(5)
    assert peer.state == "none"
    assert peer not in node.peers
    with fails(errno.ENOTCONN, HOST):
        peer.request(Handlers.ECHO)
    again = node.connect(HOST)
    assert again is not peer
    again.request(Handlers.RELEASE).wait(5)


def close(node: Node) -> None:
    """What is on its way ends; nothing works afterwards; everything is given back."""
    peer = node.connect(HOST)
    ended: list[Operation] = []
    waiting = peer.request(Handlers.LATE, args=(0,), then=ended.append)
    data = bytearray(10)
    node.register(data)
    pins = Path("/sys/fs/bpf/careful") / node.instance
    with fails(errno.EBUSY):
        careful.open("eth1")
    node.close()
    assert ended == [waiting]
    with fails(errno.ECANCELED, HOST):
        waiting.wait()
    data.clear()
    assert peer.state == "none"
    for use in (node.poll, node.wait, node.counters, lambda: node.connect(HOST)):
        with fails(errno.EBADF, "eth1", "closed"):
            use()
    node.close()
    assert not pins.exists()
    with careful.open("eth1") as second:
        second.connect(HOST).request(Handlers.RELEASE).wait(5)
    with fails(errno.ENODEV, "eth9"):
        careful.open("eth9")
    with raises(TypeError):
        careful.open("eth1", no_such=1)
    with raises(TypeError, "carefuld"):
        careful.open("eth1", export=("/",))
    with fails(errno.EINVAL, "eth1", "fast"):
        careful.open("eth1", wait="fast")


def close_errors(node: Node) -> None:
    """All that callbacks raise comes out, also of close()."""
    peer = node.connect(HOST)

    def then(operation: Operation) -> None:
        raise KeyError("in the callback")

    for _ in range(2):
        peer.request(Handlers.LATE, args=(0,), then=then)
    with raises(BaseExceptionGroup, "callbacks failed") as caught:
        node.close()
    assert [type(one) for one in caught[0].exceptions] == [KeyError, KeyError]
    with careful.open("eth1") as second:
        second.connect(HOST).request(Handlers.RELEASE).wait(5)


def misuse(node: Node) -> None:
    """Another thread, another process, and a handler that waits."""
    caught: list[BaseException] = []

    def elsewhere() -> None:
        for use in (node.poll, node.close):
            try:
                use()
            except RuntimeError as error:
                caught.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(caught) == 2

    peer = node.connect(HOST)
    node.handle(Handlers.CALLED, lambda message: node.poll())
    peer.send(Handlers.CALL_BACK)
    with raises(RuntimeError, "a handler cannot wait"):
        while True:
            node.wait(5)
    with raises(ValueError, "0 to 127"):
        node.handle(128, lambda message: None)

    child = os.fork()
    if not child:
        with raises(RuntimeError, "belongs to"):
            node.poll()
        node.close()
        sys.exit(0)  # and atexit runs
    assert os.waitpid(child, 0)[1] == 0
    assert peer.request(Handlers.ECHO, b"still here").wait(5).payload == b"ereh llits"


def interrupt(node: Node) -> None:
    """Ctrl-C ends a wait at once, also one without an end; a descriptor too."""
    for wait_mode in ("adaptive", "spin"):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        began = time.monotonic()
        with raises(KeyboardInterrupt):
            while True:
                node.wait()
        assert time.monotonic() - began < 5
        node.close()
        node = careful.open("eth1", wait=wait_mode)
    reader, writer = os.pipe()
    os.write(writer, b"x")
    assert node.wait(60, reader) == 0
    began = time.monotonic()
    assert node.wait(0.2) == 0
    assert time.monotonic() - began >= 0.2
    node.close()


def dropped(node: Node) -> None:
    """A node that nobody holds is closed; what is left keeps it, and its callbacks, alive."""
    peer = node.connect(HOST)
    node.handle(Handlers.CALLED, lambda message: b"called")
    pins = Path("/sys/fs/bpf/careful") / node.instance
    gone, node = weakref.ref(node), None  # type: ignore[assignment]
    gc.collect()
    peer.send(Handlers.CALL_BACK)
    while "called" not in report(peer):
        pass
    assert pins.exists()
    del peer
    gc.collect()
    assert gone() is None
    assert not pins.exists()


def left_open(node: Node) -> None:
    """The program ends without close(); test_node.py looks at what it left."""
    node.connect(HOST)
    print(node.instance, flush=True)
    globals()["kept"] = node


def killed(node: Node) -> None:
    """Ended by SIGKILL in the middle."""
    node.connect(HOST)
    print(node.instance, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def quit_server(node: Node) -> None:
    node.connect(HOST).request(Handlers.QUIT).wait(5)


def main() -> None:
    case = globals()[sys.argv[1]]
    owned = ("interrupt", "dropped", "left_open")
    if sys.argv[1] in owned:
        case(careful.open("eth1", peers=2))
        return
    with careful.open("eth1", peers=2) as node:
        case(node)


if __name__ == "__main__":
    main()
