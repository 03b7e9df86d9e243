"""An export whose file system is frozen, between real carefulds: whom it stops, and `down`."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("careful._binding")

from disks import Disk, MakeDisk
from hosts import Hosts, make_file, wait_for

PUTS = 6  # more than an export has workers


@contextlib.contextmanager
def frozen(disk: Disk) -> Iterator[None]:
    subprocess.run(["fsfreeze", "-f", disk.top], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", disk.top], check=True)


def hanging(pid: int) -> int:
    """Threads of a process that wait and cannot be woken."""
    tasks = Path(f"/proc/{pid}/task").glob("*/stat")
    return sum(one.read_text().rpartition(")")[2].split()[0] == "D" for one in tasks)


def test_frozen__others_are_served_and_down_ends(
    hosts: Hosts, tmp_path: Path, make_disk: MakeDisk
) -> None:
    a, b = hosts()
    disk = make_disk(tmp_path / "frozen")
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("served")
    a.up()
    b.ctl("up", "eth1", "--export", f"{disk.top}:rw", "--export", other)
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
        for put in puts:
            put.kill()
            put.wait()
