"""Two carefulds on one link: the block service over frames, and remains of clients."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lab
import pytest
from careful._abi import lib, pack, sizeof, unpack
from careful.address import resolve
from careful.daemon.client import Answer, Client
from careful.transfer.protocol.entries import parse_listing
from hosts import alive, wait_for
from lab import Lab

MIB = 1 << 20


class Local:
    """A client of a carefuld, one question at a time unless told otherwise."""

    def __init__(self, sock: Path) -> None:
        self.client = Client(sock)

    def begin(self, op: int, **more: Any) -> list[Answer]:
        """Sends a question; wait() appends the answer to the list."""
        answers: list[Answer] = []
        self.client.submit(op, answers.append, **more)
        return answers

    def wait(self, answers: list[Answer]) -> Answer:
        while not answers:
            self.client._wait(40, write=False)
        return answers[0]

    def ask(self, op: int, **more: Any) -> Answer:
        return self.wait(self.begin(op, **more))

    def connect(self, address: str, limit_ms: int = 5000) -> Answer:
        payload = resolve(address).sockaddr()
        return self.ask(lib.CAREFUL_IPC_CONNECT, payload=payload, bytes=limit_ms)

    def file(self, fd: int) -> int:
        return self.ask(lib.CAREFUL_IPC_FILE_ADD, fd=fd).check("file").file


@dataclass
class Remote:
    """The block service of a peer, through a client of ours."""

    local: Local
    peer: int

    def request(self, handler: int, payload: bytes = b"", *args: int) -> Answer:
        more = {"peer": self.peer, "handler": handler, "args": [*args, 0, 0, 0, 0][:4]}
        return self.local.ask(lib.CAREFUL_IPC_REQUEST, payload=payload, **more)

    def open(self, path: str, flags: int = 0, nbytes: int = 0, attempt: int = 0) -> Answer:
        name = os.fsencode(path)
        head = pack("careful_block_open", flags=flags, bytes=nbytes, path_bytes=len(name))
        return self.request(lib.CAREFUL_BLOCK_OPEN, head + name, 0, 0, 0, attempt)

    def create(self, path: str, nbytes: int) -> Answer:
        return self.open(path, lib.CAREFUL_BLOCK_CREATE, nbytes)

    def commit(self, key: int) -> Answer:
        return self.request(lib.CAREFUL_BLOCK_COMMIT, pack("careful_block_open", mode=0o644), key)

    def close(self, key: int) -> Answer:
        return self.request(lib.CAREFUL_BLOCK_CLOSE, b"", key)

    def move(self, op: int, key: int, file: int, nbytes: int, depth: int = 8) -> set[int]:
        """Moves a whole file in blocks. Returns the statuses."""
        starts = iter(range(0, nbytes, MIB))
        flying: list[list[Answer]] = []
        statuses: set[int] = set()
        while True:
            while len(flying) < depth and (at := next(starts, None)) is not None:
                size = min(MIB, nbytes - at)
                more = {"region": key, "region_off": at, "file_off": at, "handler": 256}
                flying.append(self.local.begin(op, peer=self.peer, file=file, bytes=size, **more))
            if not flying:
                return statuses
            statuses.add(self.local.wait(flying.pop(0)).status)


class Host:
    """A host of the lab with a carefuld that exports a directory."""

    def __init__(self, lab: Lab, name: str, run: Path, export: Path) -> None:
        self.lab, self.name, self.run, self.export = lab, name, run, export

    def up(self, *options: str) -> None:
        where = ["--instance", self.lab.instance(self.name), "--run-dir", self.run]
        export = ["--export", f"{self.export}:rw", "--insecure"]
        self.lab.run(self.name, "carefuld", "--ifname", "eth1", *where, *export, *options)

    @property
    def pid(self) -> int:
        return int((self.run / "pid").read_text())

    @property
    def log(self) -> str:
        return (self.run / "log").read_text()

    def down(self, how: signal.Signals = signal.SIGTERM) -> None:
        if (self.run / "pid").exists() and Path(f"/proc/{self.pid}").exists():
            pid = self.pid
            os.kill(pid, how)
            wait_for(lambda: not alive(pid), "the end of carefuld")

    def local(self) -> Local:
        return Local(self.run / "sock")

    def remote(self, other: Host) -> Remote:
        local = self.local()
        return Remote(local, local.connect(self.lab.address(other.name)).check(other.name).peer)

    def fds(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def temporaries(self) -> list[Path]:
        return list(self.export.glob("**/.careful-*.part"))

    def resident_bytes_max(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024


@pytest.fixture
def hosts(lab: Lab, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """h1 asks and h2 serves; the exports lie in memory."""
    shm = Path("/dev/shm") / f"careful-{os.getpid()}"
    made = []
    for name in ("h1", "h2"):
        export = shm / name
        export.mkdir(parents=True)
        made.append(Host(lab, name, tmp_path / name, export))
        made[-1].up()
    yield made[0], made[1]
    for host in made:
        host.down(signal.SIGKILL)
    shutil.rmtree(shm)


def write(path: Path, nbytes: int) -> Path:
    with path.open("wb") as f:
        for at in range(0, nbytes, MIB):
            f.write(os.urandom(min(MIB, nbytes - at)))
    return path


def same(a: Path, b: Path) -> bool:
    return subprocess.run(["cmp", a, b]).returncode == 0


def test_transfer__both_ways_and_memory(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    remote = here.remote(there)
    source = write(there.export / "big", 300 * MIB)
    opened = remote.open("big").check("open")
    assert unpack("careful_block_attr", opened.payload)["bytes"] == 300 * MIB
    target = here.export / "copy"
    with target.open("w+b") as f:
        file = remote.local.file(f.fileno())
        assert remote.move(lib.CAREFUL_IPC_GET, opened.args[0], file, 300 * MIB) == {0}
        assert remote.close(opened.args[0]).status == 0
        assert same(source, target)
        made = remote.create("back", 300 * MIB).check("create")
        assert remote.move(lib.CAREFUL_IPC_STORE, made.args[0], file, 300 * MIB) == {0}
    assert not (there.export / "back").exists()
    assert remote.commit(made.args[0]).status == 0
    assert same(target, there.export / "back")
    # UMEM (1024 buffers of 4 KiB), the copy-out pool (512), and at most 32 MiB.
    for host in hosts:
        assert host.resident_bytes_max() < (4 + 2 + 32) * MIB


def test_open__is_repeated(hosts: tuple[Host, Host]) -> None:
    remote = hosts[0].remote(hosts[1])
    write(hosts[1].export / "f", 10)
    first = remote.open("f", attempt=7)
    assert remote.open("f", attempt=7).args == first.args
    assert remote.open("f", attempt=8).args != first.args
    closed = remote.close(first.args[0])
    assert remote.close(first.args[0]).payload == closed.payload


def test_errors__across_the_link(hosts: tuple[Host, Host]) -> None:
    remote = hosts[0].remote(hosts[1])
    export = hosts[1].export
    (export / "out").symlink_to("/etc/passwd")
    os.mkfifo(export / "fifo")
    assert remote.open("none").status == -errno.ENOENT
    assert remote.open("out").status == -errno.EXDEV
    assert remote.open("../x").status == -errno.EXDEV
    assert remote.open("fifo").status == -errno.ENOTSUP
    assert remote.open("").status == -errno.EISDIR
    assert remote.create("f", 1 << 62).status in (-errno.ENOSPC, -errno.EFBIG)
    assert remote.request(200).status == -errno.ENOSYS
    assert remote.close(12345).status == -errno.EBADF
    assert hosts[1].temporaries() == []


def test_listing__thousands(hosts: tuple[Host, Host]) -> None:
    remote = hosts[0].remote(hosts[1])
    for d in range(5):
        folder = hosts[1].export / f"folder{d}"
        folder.mkdir()
        for i in range(2000):
            (folder / f"{'name' * 20}{i}").touch()
    answer = remote.request(lib.CAREFUL_BLOCK_LIST, b"", lib.CAREFUL_BLOCK_RECURSIVE).check("list")
    key, high, low, unreadable = answer.args
    size = high << 32 | low
    assert (high, unreadable) == (0, 0)
    assert size > MIB  # so that it lies in a file, not in memory
    fd = os.memfd_create("listing")
    os.ftruncate(fd, size)
    assert remote.move(lib.CAREFUL_IPC_GET, key, remote.local.file(fd), size) == {0}
    entries = parse_listing(os.pread(fd, size, 0))
    os.close(fd)
    assert len(entries) == 5 * 2001
    assert {e.name for e in entries if e.attr.is_dir} == {f"folder{d}" for d in range(5)}
    assert remote.close(key).status == 0


CHILD = """
import sys, time
from pathlib import Path
sys.path[:0] = {paths!r}
from test_block_service import *
local = Local(Path({sock!r}))
remote = Remote(local, local.connect({address!r}).check("peer").peer)
key = remote.open("big").check("open").args[0]
for i in range(5):
    remote.create(f"new{{i}}", MIB).check("create")
f = open({target!r}, "w+b")
file = local.file(f.fileno())
print("go", flush=True)
while True:
    remote.move(lib.CAREFUL_IPC_GET, key, file, 64 * MIB)
"""


def test_client__killed_leaves_nothing(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    write(there.export / "big", 64 * MIB)
    remote = here.remote(there)
    before = [host.fds() for host in hosts]
    code = CHILD.format(
        paths=[str(Path(one).parent) for one in (__file__, lab.__file__)],
        sock=str(here.run / "sock"),
        address=here.lab.address("h2"),
        target=str(tmp_path / "target"),
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "go\n"
        wait_for(lambda: len(there.temporaries()) == 5, "temporary file of each")
    finally:
        child.kill()
        child.communicate()
    wait_for(lambda: not there.temporaries(), "removal of temporary files")
    wait_for(lambda: [host.fds() for host in hosts] == before, "return to so many descriptors")
    assert remote.open("big").status == 0


def test_peer__killed_and_back(hosts: tuple[Host, Host]) -> None:
    here, there = hosts
    write(there.export / "big", 64 * MIB)
    remote = here.remote(there)
    before = there.fds()
    key = remote.open("big").check("open").args[0]
    remote.create("new", MIB).check("create")
    assert len(there.temporaries()) == 1
    here.down(signal.SIGKILL)
    # The same host with a new process: the former one's open files are void.
    here.up()
    again = here.remote(there)
    assert again.close(key).status == -errno.EBADF
    wait_for(lambda: not there.temporaries(), "removal of temporary files")
    wait_for(lambda: there.fds() == before, "return to so many descriptors")


def test_connect__errors(hosts: tuple[Host, Host]) -> None:
    here, there = hosts
    local = here.local()
    began = time.monotonic()
    assert local.connect("10.77.0.99", 300).status < 0  # no such host
    assert time.monotonic() - began < 20
    there.down()
    assert local.connect(here.lab.address("h2"), 3000).status == -errno.ECONNREFUSED
    assert time.monotonic() - began < 40
    # The slots are free again: each of twelve more attempts finds one.
    for k in range(12):
        assert local.connect(f"10.77.0.{k + 100}", 50).status != -errno.EADDRINUSE
    there.up()
    assert local.connect(here.lab.address("h2")).status == 0


def test_peer__ends_during_a_transfer(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    write(there.export / "big", 512 * MIB)
    remote = here.remote(there)
    key = remote.open("big").check("open").args[0]
    with (tmp_path / "target").open("w+b") as f:
        file = remote.local.file(f.fileno())
        flying = [
            remote.local.begin(
                lib.CAREFUL_IPC_GET, peer=remote.peer, file=file, region=key, bytes=64 * MIB
            )
            for _ in range(8)
        ]
        time.sleep(0.05)
        there.down(signal.SIGKILL)
        began = time.monotonic()
        statuses = {remote.local.wait(one).status for one in flying}
    assert time.monotonic() - began < 20
    assert statuses & {-errno.ECONNRESET, -errno.ECONNREFUSED, -errno.ETIMEDOUT}


def test_disk__full(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    write(there.export / "big", 8 * MIB)
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], check=True)
    try:
        remote = here.remote(there)
        key = remote.open("big").check("open").args[0]
        with (small / "target").open("w+b") as f:
            file = remote.local.file(f.fileno())
            statuses = remote.move(lib.CAREFUL_IPC_GET, key, file, 8 * MIB)
            assert -errno.ENOSPC in statuses
            assert statuses <= {0, -errno.ENOSPC}
            remote.local.ask(lib.CAREFUL_IPC_FILE_REMOVE, file=file).check("remove")
        assert remote.close(key).status == 0
    finally:
        subprocess.run(["umount", small], check=True)


def test_source__shrinks(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    here, there = hosts
    source = write(there.export / "f", 8 * MIB)
    remote = here.remote(there)
    key = remote.open("f").check("open").args[0]
    os.truncate(source, 3 * MIB)
    with (tmp_path / "target").open("w+b") as f:
        file = remote.local.file(f.fileno())
        statuses = remote.move(lib.CAREFUL_IPC_GET, key, file, 8 * MIB)
    assert statuses == {0, -errno.ENODATA}
    assert unpack("careful_block_attr", remote.close(key).payload)["bytes"] == 3 * MIB
    assert sizeof("careful_block_attr") == 64
