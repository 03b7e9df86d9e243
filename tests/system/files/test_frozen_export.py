"""Disks that are frozen or hang, between real carefulds: their effect on others, and `down`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from careful._binding import lib
from careful.daemon.client import Answer, Client
from disks import Disk, MakeDisk
from hosts import MIB, RUN, Host, Hosts, make_file, received, wait_for
from slow_disk import slow_disk

PUTS = 6  # more than an export has workers
FRAMES = 200  # of a get that has begun


@contextmanager
def frozen(disk: Disk) -> Iterator[None]:
    subprocess.run(["fsfreeze", "-f", disk.top], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", disk.top], check=True)


def hanging(pid: int) -> int:
    """Returns how many threads of a process are in uninterruptible sleep."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return sum(one.read_text().rpartition(")")[2].split()[0] == "D" for one in tasks)


def end_all(processes: Iterable[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()


def test_frozen__others_are_served_and_down_ends(
    hosts: Hosts, tmp_path: Path, make_disk: MakeDisk
) -> None:
    a, b = hosts()
    disk = make_disk(tmp_path / "frozen")
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("served")
    a.up()
    b.ctl("up", "eth1", "--export", f"{disk.top}:rw", "--insecure", "--export", other)
    make_file(a.own / "source", 1000)
    puts = []
    try:
        with frozen(disk):
            pid = b.pid
            puts = [a.start("put", a.own / "source", f"h2:frozen/{n}") for n in range(PUTS)]
            wait_for(lambda: hanging(pid) > 1, "operations that hang")
            assert a.ctl("ls", "h2:other").stdout == "f\n"
            assert "hang in a file system" in b.ctl("down", "eth1").stdout
            assert hanging(pid) > 1
            b.ctl("up", "eth1", "--export", other)
            assert a.ctl("ls", "h2:").stdout == "f\n"
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of what was left")
    finally:
        end_all(puts)


def test_client__with_a_hanging_file_system_stops_no_other(
    pair: tuple[Host, Host], tmp_path: Path
) -> None:
    """A FUSE server hangs while carefuld examines and closes a file on it."""
    a, b = pair
    top, removed = tmp_path / "slow", list[Answer]()
    for folder in (top, tmp_path / "backing"):
        folder.mkdir()
    (tmp_path / "backing/f").write_bytes(b"x")
    (b.export / "f").write_text("served")
    sock = RUN / a.lab.instance(a.name) / "sock"
    with slow_disk(0, 0, top, tmp_path) as server, Client(sock) as client:
        fd = os.open(top / "f", os.O_RDONLY)
        server.send_signal(signal.SIGSTOP)
        try:
            file = client.call(lib.CAREFUL_IPC_FILE_ADD, "f", fd=fd, timeout_s=60).file
            client.submit(lib.CAREFUL_IPC_FILE_REMOVE, removed.append, file=file)
            for _ in range(2):
                assert "f" in a.ctl("ls", "h2:", timeout=60).stdout
            client.receive()
            assert not removed
        finally:
            server.send_signal(signal.SIGCONT)
            os.close(fd)
        wait_for(lambda: client.receive() or removed, "the end of the file")


def test_get__to_a_frozen_disk_stops_no_other(
    pair: tuple[Host, Host], tmp_path: Path, make_disk: MakeDisk
) -> None:
    a, b = pair
    disk = make_disk(tmp_path / "frozen", 128 * MIB)
    make_file(b.export / "big", 64 * MIB)
    small = make_file(b.export / "small", 3 * MIB)
    (a.export / "mine").write_text("served")
    before = received(a)
    get = a.start("get", "h2:big", disk.top / "big", "--rate-limit", "4MiB")
    try:
        wait_for(lambda: received(a) > before + FRAMES, "traffic")
        with frozen(disk):
            wait_for(lambda: hanging(a.pid), "a write that hangs")
            for _ in range(3):
                assert "small" in a.ctl("ls", "h2:", timeout=60).stdout
                assert "mine" in b.ctl("ls", "h1:", timeout=60).stdout
                a.ctl("get", "h2:small", a.own / "small", "--force", timeout=60)
            assert (a.own / "small").read_bytes() == small
            assert hanging(a.pid), "the disk does not hang"
            assert a.assert_nothing_lost()["counters"]["copied_out"] > 0
            pid = a.pid
            assert "hang in a file system" in a.ctl("down", "eth1").stdout
            assert hanging(pid)
            a.up()
            assert "small" in a.ctl("ls", "h2:", timeout=60).stdout
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the end of what was left")
    finally:
        end_all([get])
