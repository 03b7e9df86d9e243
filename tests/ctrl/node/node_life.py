"""Cases of test_node.py: peers, ends of all kinds, and misuse."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path

import careful
from careful.errors import CarefulError
from careful.node import Node, Operation
from node_checks import HOST, descriptors, fails, raises, regions_of, report
from node_handlers import Handlers
from node_server import BLANK_BYTES, NBYTES


def peers(node: Node) -> None:
    """Names of peers, and hosts that do not exist."""
    with fails(errno.EHOSTUNREACH, "nowhere"):
        node.connect("nowhere")
    for address in ("8.8.8.8", "2001:db8::1"):
        with fails(errno.ENETUNREACH, address, "no route to it through this interface"):
            node.connect(address)
    for address in ("10.77.0.1", "fd77::1", "127.0.0.1"):
        with fails(errno.ENOTUNIQ, address, "that address is this host's own"):
            node.connect(address)
    with fails(errno.ECONNREFUSED, "10.77.0.2:9"):
        node.connect("10.77.0.2:9", timeout_s=30)
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
        operation.result(30)
    assert peer.state == "none"
    assert peer not in node.peers
    with fails(errno.ENOTCONN, HOST):
        peer.request(Handlers.ECHO)
    with fails(errno.ENOTCONN, HOST):
        node.register(bytearray(1), peer=peer)
    again = node.connect(HOST)
    assert again is not peer
    again.request(Handlers.RELEASE).result(30)


def close(node: Node) -> None:
    """Operations under way end; nothing works afterwards; everything is freed."""
    peer = node.connect(HOST)
    ended: list[Operation] = []
    waiting = peer.request(Handlers.LATE, args=(0,))
    waiting.add_done_callback(ended.append)
    data = bytearray(10)
    node.register(data)
    pins = Path("/sys/fs/bpf/careful") / node.instance
    with fails(errno.EBUSY, "instance: ", "is in use by this program itself; close it"):
        careful.open("eth1")
    node.close()
    assert ended == [waiting]
    with fails(errno.ECANCELED, HOST):
        waiting.result()
    data.clear()
    assert peer.state == "none"
    for use in (node.poll, node.wait, node.counters, node.info, lambda: node.connect(HOST)):
        with fails(errno.EBADF, "eth1", "closed"):
            use()
    node.close()
    assert not pins.exists()
    with careful.open("eth1") as second:
        second.connect(HOST).request(Handlers.RELEASE).result(30)


def options(node: Node) -> None:
    """open() refuses options, with names as in Python."""
    node.close()
    with fails(errno.ENODEV, "eth9"):
        careful.open("eth9")
    with raises(TypeError, "not bytes"):
        careful.open(b"eth1")  # type: ignore[arg-type]
    with raises(TypeError):
        careful.open("eth1", no_such=1)
    with raises(TypeError, "carefuld"):
        careful.open("eth1", export=("/",))
    with raises(TypeError, "peers = '8'"):
        careful.open("eth1", peers="8")
    with fails(errno.EINVAL, "eth1", "fast"):
        careful.open("eth1", wait="fast")
    with fails(errno.EINVAL, "eth1", "peers = -1"):
        careful.open("eth1", peers=-1)
    with fails(errno.EINVAL, "eth1: rx_buffers: 100 must be a power of two"):
        careful.open("eth1", rx_buffers=100)
    with fails(errno.ENOBUFS, "eth1: rx_buffers: 200 peers need 800", "fewer peers"):
        careful.open("eth1", peers=200)
    with fails(errno.ENOKEY, "eth1: seal: needs keys", "keys=DIR"):
        careful.open("eth1", seal="auth", keys="none")
    with fails(errno.ENOENT, "/no/careful.toml"):
        careful.open("eth1", config="/no/careful.toml")
    gc.disable()
    careful.open("eth1", peers=4).connect(HOST)
    with warnings.catch_warnings(record=True) as warned, careful.open("eth1") as after_it:
        assert after_it.info()["peers_max"] == 8
    assert [one.category for one in warned] == [ResourceWarning]  # it was dropped, not closed


def close_errors(node: Node) -> None:
    """Exceptions of callbacks are reported, also by close(); all interrupts are raised."""
    peer = node.connect(HOST)
    reported: list[str] = []
    node.on_error = lambda error, where: reported.append(f"{error!r} {where}")

    def fails_with(error: BaseException) -> Callable[[Operation], None]:
        def then(operation: Operation) -> None:
            raise error

        return then

    for error in (KeyError("mine"), SystemExit(1), KeyboardInterrupt()):
        peer.request(Handlers.LATE, args=(0,)).add_done_callback(fails_with(error))
    with raises(BaseExceptionGroup, "callbacks failed") as caught:
        node.close()
    assert {type(one) for one in caught[0].exceptions} == {SystemExit, KeyboardInterrupt}
    assert reported == [f"KeyError('mine') callback of an operation of {HOST}"]
    with careful.open("eth1") as second:
        second.connect(HOST).request(Handlers.RELEASE).result(30)


def misuse(node: Node) -> None:
    """Use by another thread, another process, and a handler that waits."""
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
    node.on_error = lambda error, where: caught.append(error)
    peer.send(Handlers.CALL_BACK)
    while len(caught) < 3:
        node.wait(30)
    with raises(RuntimeError, "a handler cannot wait"):
        raise caught[2]
    node.handle(Handlers.CALLED, lambda message: node.close())
    peer.send(Handlers.CALL_BACK)
    while len(caught) < 4:
        node.wait(30)
    with raises(RuntimeError, "a handler cannot close the node"):
        raise caught[3]
    with raises(RuntimeError, "async with"):
        peer.request(Handlers.ECHO).__await__().send(None)
    with raises(ValueError, "0 to 127"):
        node.handle(128, lambda message: None)


def kept_from_children_bytes() -> int:
    """Returns the bytes of mappings that fork() leaves out."""
    nbytes = size = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if line.startswith("Size:"):
            size = int(line.split()[1]) * 1024
        elif line.startswith("VmFlags:") and "dc" in line.split():
            nbytes += size
    return nbytes


def forked(node: Node) -> None:
    """A forked child has no access, and does not disturb the parent."""
    peer = node.connect(HOST)
    assert kept_from_children_bytes() >= (512 + 512) * 4096
    before = descriptors()
    reader, writer = os.pipe()
    ready, closed = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        for use in (node.poll, peer.close, lambda: peer.state):
            with raises(RuntimeError, "belongs to the process"):
                use()
        node.close()
        assert descriptors() < before - 10
        os.write(closed, b"x")
        os.read(reader, 1)
        sys.exit(0)  # and atexit runs
    assert peer.request(Handlers.ECHO, b"still here").result(30).payload == b"ereh llits"
    node.close()
    os.close(closed)
    assert os.read(ready, 1) == b"x"  # it may not have run until now
    with careful.open("eth1") as again:
        result = again.connect(HOST).request(Handlers.ECHO, b"again").result(30)
        assert result.payload == b"niaga"
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.write(writer, b"x")
        assert os.waitpid(child, 0)[1] == 0


def interrupt(node: Node) -> None:
    """Ctrl-C, or a descriptor, ends a wait at once, also one without a timeout."""
    for wait_mode in ("adaptive", "spin"):
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        began = time.monotonic()
        with raises(KeyboardInterrupt):
            while True:
                node.wait()
        assert time.monotonic() - began < 30
        node.close()
        node = careful.open("eth1", wait=wait_mode)
    reader, writer = os.pipe()
    os.write(writer, b"x")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    os.dup2(reader, 1500)  # more than select() can handle
    assert node.wait(60, 1500) == 0
    began = time.monotonic()
    assert node.wait(0.2) == 0
    assert time.monotonic() - began >= 0.2
    node.close()


def dropped(node: Node) -> None:
    """An unreferenced node is closed; objects of it keep it and its callbacks alive."""
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
    """The program ends without close(); test_node.py checks its remains."""
    node.connect(HOST)
    print(node.instance, flush=True)
    globals()["kept"] = node


def left_in_a_thread() -> None:
    """The program ends while its daemon thread serves."""
    serves = threading.Event()

    def serve() -> None:
        with careful.open("eth1", peers=2, wait="block") as node:
            print(node.instance, flush=True)
            node.handle(1, lambda message: b"")
            serves.set()
            while True:
                node.wait()

    threading.Thread(target=serve, daemon=True).start()
    assert serves.wait(30)


def forked_again(node: Node) -> None:
    """Children that close nothing do not disturb either."""
    for _ in range(4):
        child = os.fork()
        if not child:
            signal.pause()
        node.close()
        try:
            node = careful.open("eth1")
            result = node.connect(HOST).request(Handlers.ECHO, b"again").result(30)
            assert result.payload == b"niaga"
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    node.close()


def killed(node: Node) -> None:
    """The program is killed in the middle; a child lives on."""
    node.connect(HOST)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(0, 1)  # test_node.py waits for the ends of these
        os.dup2(0, 2)
        os.write(writer, b"x")
        signal.pause()
    os.read(reader, 1)
    print(node.instance, child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def peer_gone(node: Node, number: int, stopped: bool) -> None:
    """Operations under way end with the reason, and so do later ones."""
    peer, pid = node.connect(HOST), int(sys.argv[3])
    memory, blank, _ = regions_of(peer)
    os.kill(pid, signal.SIGSTOP)
    into = bytearray(NBYTES)
    flying = [
        peer.request(Handlers.ECHO),
        memory.get(into),
        blank.store(bytes(BLANK_BYTES)),
    ]
    node.poll()
    if not stopped:
        os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    for operation in flying:
        with fails(number, HOST):
            operation.result()
    assert time.monotonic() - began < 20
    into.clear()
    assert (peer.state, peer.error) == ("failed", number)
    with fails(number, HOST):
        peer.request(Handlers.ECHO)
    with fails(number, HOST):
        node.connect(HOST, timeout_s=0.5 if stopped else 30)
    os.kill(pid, signal.SIGCONT)


def interface_gone(node: Node) -> None:
    """wait() raises, operations end, and close() works."""
    peer = node.connect(HOST)
    flying = peer.request(Handlers.LATE, args=(0,))
    subprocess.run(["ip", "link", "delete", "eth1"], check=True)
    with fails(errno.ENODEV, "eth1", "the interface is gone"):
        while True:
            node.wait(30)
    assert flying.done()
    with fails(errno.ENODEV, HOST, "the interface is gone"):
        flying.result()
    with fails(errno.ENODEV):
        node.connect(HOST)


def peer_killed(node: Node) -> None:
    peer_gone(node, errno.ECONNREFUSED, stopped=False)


def peer_silent(node: Node) -> None:
    peer_gone(node, errno.ETIMEDOUT, stopped=True)
    peer = node.connect(HOST)
    assert peer.request(Handlers.ECHO, b"again").result(30).payload == b"niaga"


def beside_carefuld() -> None:
    """The queue is in use; its owner is not disturbed."""
    with fails(errno.EBUSY, "carefuld runs on eth1", "careful.attach()"):
        careful.open("eth1")
    with fails(errno.EBUSY, "carefuld runs on eth1"):
        careful.open("eth1", "other")
    with fails(errno.EBUSY, "carefuld runs on eth1"):
        careful.open("eth1", "other", port=5000)


def quit_server(node: Node) -> None:
    node.connect(HOST).request(Handlers.QUIT).result(30)


def away(node: Node) -> None:
    """A program that slept until its peer gave it up continues normally."""
    peer = node.connect(HOST)
    assert peer.request(Handlers.ECHO, b"first").result(30).payload == b"tsrif"
    memory = regions_of(peer)[0]
    for attempt in range(2):
        time.sleep(2.5)
        assert peer.request(Handlers.ECHO, b"again").result(30).payload == b"niaga", attempt
        time.sleep(2.5)
        into = bytearray(10)
        assert memory.get(into, offset=5).result(30).nbytes == 10
        assert into == bytes(range(5, 15))
    assert node.counters()["lost_frames"] == 0
