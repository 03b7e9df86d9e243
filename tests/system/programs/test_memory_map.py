"""Maps of memory that another host lends: faults, write-back, limits, and hosts that go away."""

from __future__ import annotations

import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, finish, wait_for
from lab import Lab

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not Path("/dev/userfaultfd").exists(), reason="no /dev/userfaultfd"),
]

#: Each program below begins with this.
HEAD = """
import os, sys, threading, time
import careful.memory
IFNAME, PAGE = os.environ.get("IFNAME"), 4096
h2 = careful.memory.connect("h2", ifname=IFNAME, timeout_s=3)
"""
#: Parameter of `lent`: programs on h1 share a carefuld's queue, or own it.
WAYS = pytest.mark.parametrize("lent", ["attached", "owned"], indirect=True)


def python(host: Host, text: str, *args: str | Path, check: bool = True) -> tuple[int, str]:
    """Runs a program on a host to its end; returns its status and output."""
    owns = host.ctl("status", "eth1", check=False).returncode != 0
    argv = ["env", *["IFNAME=eth1"] * owns, sys.executable, "-W", "error", "-c", HEAD + text, *args]
    done = host.lab.run(host.name, *argv, check=check)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def lent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, lab_possible: None
) -> Iterator[list[Host]]:
    """Yields h1, which borrows, and h2, which lends 512 MiB."""
    lab = Lab()
    try:
        made = [Host(lab, name, tmp_path_factory.mktemp("map")) for name in lab.hosts]
        up = made[1:] if getattr(request, "param", "") == "owned" else made
        for host in up:
            host.up(*(("--lend", "512MiB") if host.name == "h2" else ()))
        yield made
        for host in up:
            host.down()
    finally:
        lab.down()


@WAYS
def test_map__is_read_as_it_is_touched(lent: list[Host]) -> None:
    """In sequence, at random, by several threads, and to the last byte of an odd size."""
    text = """
import random
data = os.urandom((24 << 20) + 77)
with h2.create("read", len(data)) as piece:
    piece.write(data)
for way in ("forward", "random", "threads", "backward"):
    with h2.open("read") as piece:
        view = piece.map(writable=False)
        assert view.readonly and len(view) == len(data)
        pages = list(range(0, len(data), PAGE))
        if way == "random":
            random.Random(1).shuffle(pages)
        if way == "backward":
            pages.reverse()
        if way == "threads":
            wrong = []
            def check(mine):
                for at in mine:
                    if view[at : at + PAGE] != data[at : at + PAGE]:
                        wrong.append(at)
            threads = [threading.Thread(target=check, args=(pages[k::4],)) for k in range(4)]
            [one.start() for one in threads]
            [one.join() for one in threads]
            assert not wrong
        else:
            for at in pages:
                assert view[at : at + PAGE] == data[at : at + PAGE], (way, at)
        del view
h2.delete("read")
"""
    python(lent[0], text)


@WAYS
def test_map__is_written_back(lent: list[Host]) -> None:
    """Changes are written by flush(), by close(), or at the end of the program, not before."""
    text = """
with h2.create("write", 8 << 20) as piece:
    piece.write(b"old" * 1000, 5000)
other = h2.open("write")
piece = h2.open("write")
view = piece.map()
view[0:5] = b"first"
view[6 << 20 : (6 << 20) + 4] = b"sixt"
assert bytes(view[5000:5003]) == b"old"
assert other.read(0, 5) == bytes(5)
piece.flush()
assert other.read(0, 5) == b"first" and other.read(6 << 20, 4) == b"sixt"
assert other.read(5000, 3000) == b"old" * 1000
view[0:5] = b"again"
view[100] = 7
piece.flush()
assert other.read(0, 5) == b"again" and other.read(100, 1) == b"\\7"
view[0:5] = b"third"
try:
    piece.close()
except BufferError:
    pass
else:
    raise AssertionError("closed below a view")
view.release()
piece.close()
assert other.read(0, 5) == b"third"
last = h2.open("write").map()
last[0:5] = b"ended"
"""
    python(lent[0], text)
    text = """
assert h2.open("write").read(0, 5) == b"ended"
h2.delete("write")
"""
    python(lent[0], text)


@WAYS
def test_map__stays_within_its_limit(lent: list[Host]) -> None:
    """Sorts four times as much memory as the limit."""
    text = """
import numpy as np
def resident():
    lines = open("/proc/self/smaps").read().split("\\n")
    at = next(k for k, line in enumerate(lines) if line.startswith(f"{address:x}-"))
    return next(int(line.split()[1]) for line in lines[at:] if line.startswith("Rss:")) << 10
count = 1 << 22
numbers = np.random.default_rng(1).integers(0, 1 << 40, count, dtype=np.int64)
with h2.create("sort", numbers.nbytes) as piece:
    piece.write(numbers)
with h2.open("sort") as piece:
    array = np.frombuffer(piece.map(local_bytes=8 << 20), dtype=np.int64)
    address = array.ctypes.data
    part = count // 8
    most = 0
    for at in range(0, count, part):
        array[at : at + part].sort()
        most = max(most, resident())
    array.sort(kind="stable")
    most = max(most, resident())
    assert (array[:-1] <= array[1:]).all()
    assert most <= (8 << 20) + (10 << 20), most
    del array
got = np.empty_like(numbers)
with h2.open("sort") as piece:
    piece.read_into(got)
numbers.sort()
assert (got == numbers).all()
h2.delete("sort")
"""
    python(lent[0], text)


@WAYS
def test_map__several_fork_and_prefetch(lent: list[Host]) -> None:
    text = """
import signal
import socket
with h2.create("many", 1 << 20) as piece:
    piece.write(bytes(range(256)) * 4096)
pieces = [h2.open("many") for _ in range(5)]
views = [piece.map() for piece in pieces]
views[0][10] = 99
assert views[1][10] == 10, "another map, before a flush"
pieces[0].flush()
assert views[2][10] == 99
pieces[3].prefetch(0, 1 << 20)
until = time.monotonic() + 60
while pieces[3].read(11, 1) != b"\\x0b" and time.monotonic() < until:
    time.sleep(0.01)
for call in (pieces[0].write, pieces[1].read_into):
    try:
        call(views[1][100:200], 0)
    except OSError as error:
        assert "is a map's" in str(error), error
    else:
        raise AssertionError("the thread would serve its own fault")
child = os.fork()
if not child:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    views[0][0]
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV
assert bytes(views[4]) == bytes(views[2])
del views
h2.delete("many")
"""
    python(lent[0], text)


@WAYS
def test_map__of_a_host_that_is_gone(lent: list[Host]) -> None:
    """An access raises SIGBUS, a call ConnectionError; changed pages stay."""
    h1 = lent[0]
    text = """
import subprocess
with h2.create("gone", 1 << 20) as piece:
    piece.write(b"x" * (1 << 20))
piece = h2.open("gone")
view = piece.map(timeout_s=1)
view[0] = 1
subprocess.run(["ip", "link", "set", "eth1", "down"], check=True)
for call in (piece.flush, lambda: piece.read(0, 1)):
    try:
        call()
    except ConnectionError as error:
        assert error.filename == "h2:gone", error
    else:
        raise AssertionError("no ConnectionError")
child = None
if sys.argv[1] == "touch":
    print("touching", flush=True)
    view[1 << 19]
    print("not reached")
subprocess.run(["ip", "link", "set", "eth1", "up"], check=True)
until = time.monotonic() + 60
while True:
    try:
        piece.flush()
        break
    except ConnectionError:
        assert time.monotonic() < until
        time.sleep(0.2)
assert h2.open("gone").read(0, 2) == b"\\1x"
del view
piece.close()
h2.delete("gone")
"""
    try:
        python(h1, text, "flush")
        status, said = python(h1, text, "touch", check=False)
        assert (status, said) == (-signal.SIGBUS, "touching\n")
    finally:
        h1.lab.run("h1", "ip", "link", "set", "eth1", "up")
        h1.ctl("memory", "rm", "h2:gone", check=False)


@WAYS
def test_connect__over_a_queue(lent: list[Host]) -> None:
    """All connections share the queue, and the last one gives it back. carefuld's is refused."""
    text = """
import careful
if IFNAME:
    assert careful.memory.connect("h2", ifname=IFNAME)._client is h2._client
    with h2.create("queue", 4096) as piece:
        piece.write(b"some")
        h2 = None
        assert piece.read(0, 4) == b"some"
    piece = None
    with careful.open(IFNAME) as node:
        node.connect("h2")
    careful.memory.connect("h2", ifname=IFNAME).delete("queue")
else:
    try:
        careful.memory.connect("h2", ifname="eth1")
    except OSError as error:
        assert "carefuld runs on eth1" in str(error), error
    else:
        raise AssertionError("two own the queue")
"""
    python(lent[0], text)


def test_map__without_the_right(lent: list[Host]) -> None:
    """The error says how to get the right."""
    if Path("/dev/userfaultfd").stat().st_mode & 0o006:
        pytest.skip("everybody may use /dev/userfaultfd here")
    text = """
import ctypes
with h2.create("right", 4096) as piece:
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    try:
        piece.map()
    except PermissionError as error:
        assert "sysctl vm.unprivileged_userfaultfd=1" in str(error), error
    else:
        raise AssertionError("mapped")
h2.delete("right")
"""
    if Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() != "0":
        pytest.skip("everybody may use userfaultfd here")
    python(lent[0], text)


#: A monitor that restores a machine passes its userfaultfd and its memory's layout.
MONITOR = """
import array, ctypes, fcntl, json, mmap, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
NEW, API, REGISTER, REMOVE = 0xAA00, 0xC018AA3F, 0xC020AA00, 1 << 3
device = os.open("/dev/userfaultfd", os.O_RDWR)
uffd = fcntl.ioctl(device, NEW, os.O_CLOEXEC | os.O_NONBLOCK)
fcntl.ioctl(uffd, API, struct.pack("QQQ", 0xAA, REMOVE, 0))
parts, listed = [], []
for nbytes, offset in ((1 << 20, 0), (3 << 20, 1 << 20)):
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(uffd, REGISTER, struct.pack("QQQQ", base, nbytes, 1, 0))
    parts.append((memory, base))
    listed.append({"base_host_virt_addr": base, "size": nbytes, "offset": offset,
                   "page_size": 4096})
with socket.socket(socket.AF_UNIX) as server:
    server.connect(sys.argv[1])
    sent = json.dumps(listed).encode()
    server.sendmsg([sent], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [uffd]))])
    for k, (memory, base) in enumerate(parts):
        for at in range(0, len(memory), 4096):
            page = (k * (1 << 20) + at) // 4096
            assert memory[at : at + 4] == struct.pack("=I", page), (k, at)
    memory, base = parts[1]
    memory[0:4] = b"mine"
    assert libc.madvise(ctypes.c_void_p(base + 8192), 8192, 4) == 0
    assert memory[8192:8196] == bytes(4) and memory[16384:16388] != bytes(4)
print("restored")
"""


def test_machine__is_restored(lent: list[Host], tmp_path: Path) -> None:
    """Two machines at once, from one piece, which stays unchanged."""
    h1, _ = lent
    (h1.own / "vm").write_bytes(
        b"".join(page.to_bytes(4, sys.byteorder) * 1024 for page in range(1024))
    )
    h1.ctl("memory", "put", h1.own / "vm", "h2:vm")
    path = tmp_path / "vm.sock"
    server = h1.start("memory", "serve", "h2:vm", path)
    try:
        wait_for(path.exists, "socket")
        argv = [sys.executable, "-c", MONITOR, str(path)]
        both = [h1.lab.start("h1", *argv) for _ in range(2)]
        assert [finish(one) for one in both] == [(0, "restored\n", "")] * 2
        h1.ctl("memory", "get", "h2:vm", h1.own / "copy")
        assert (h1.own / "copy").read_bytes() == (h1.own / "vm").read_bytes()
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(str(path))
            rude.sendall(b'[{"size": "no"}]')
            assert rude.recv(1) == b""
        with socket.socket(socket.AF_UNIX) as rude, Path("/dev/null").open("rb") as null:
            rude.connect(str(path))
            layout = b'[{"base_host_virt_addr": 4096, "size": 4096, "offset": 0}]'
            socket.send_fds(rude, [layout], [null.fileno()])
            assert rude.recv(1) == b""
        assert server.poll() is None
    finally:
        server.send_signal(signal.SIGINT)
        said = finish(server)[1]
        h1.ctl("memory", "rm", "h2:vm", check=False)
    assert "serves 2 parts of a machine's memory" in said
    assert not path.exists()


def test_serve__ends_although_its_owner_keeps_the_descriptor(lent: list[Host]) -> None:
    """Faults that nobody serves any longer cost no processor time."""
    text = """
import ctypes, fcntl, mmap, struct
uffd = fcntl.ioctl(os.open("/dev/userfaultfd", os.O_RDWR), 0xAA00, os.O_CLOEXEC | os.O_NONBLOCK)
fcntl.ioctl(uffd, 0xC018AA3F, struct.pack("QQQ", 0xAA, 0, 0))
memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(uffd, 0xC020AA00, struct.pack("QQQQ", base, 1 << 20, 1, 0))
with h2.create("kept", 1 << 20) as other:
    piece = h2.open("kept")
    piece.serve(uffd, base, 0, 1 << 20)
    assert memory[:4] == bytes(4)
    piece.close(discard=True)
    touch = ctypes.CDLL(None).memcpy, ctypes.create_string_buffer(1), ctypes.c_void_p(base + 999999)
    threading.Thread(target=touch[0], args=(*touch[1:], 1), daemon=True).start()
    time.sleep(0.1)
    used = time.process_time()
    time.sleep(1)
    used = time.process_time() - used
h2.delete("kept")
print(used < 0.02 or used, flush=True)
os._exit(0)
"""
    assert python(lent[0], text) == (0, "True\n")


def test_example__of_the_readme(lent: list[Host]) -> None:
    """Sorts four times as much memory as the limit."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    (program,) = re.findall(r"^## Memory$.*?^```python\n(.*?)^```$", readme, re.M | re.S)
    for _ in range(2):
        assert python(lent[0], program) == (0, "True\n")
    assert "no pieces" in lent[0].ctl("memory", "ls", "h2").stdout
