"""Transfers in the lab that end early in several ways, and the repeated command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from careful.transfer.file import journal
from hosts import MIB, Host, alive, finish, make_file, wait_for

SIZE = 24 * MIB + 4321
BLOCK = 128 << 10
#: Options of the first transfer: slow (half a minute), so that it is always interrupted.
SLOW = ("--block-bytes", "128KiB", "--rate-limit", "1MiB")


class Pair:
    """A file that moves from one host to the other."""

    def __init__(self, a: Host, b: Host, way: str) -> None:
        self.a, self.b, self.way = a, b, way
        if way == "get":
            self.source, self.target = b.export / "file", a.own / "file"
            self.command: tuple[str | Path, ...] = ("get", "h2:file", self.target)
        else:
            self.source, self.target = a.own / "file", b.export / "file"
            self.command = ("put", self.source, "h2:file")
        self.data = make_file(self.source, SIZE)

    def partials(self) -> list[Path]:
        """Returns the partial files of an interrupted transfer."""
        return [one for one in self.target.parent.iterdir() if journal.NAME.match(one.name)]

    def blocks_in_place(self) -> int:
        """Returns the number of blocks in the partial file's journal."""
        for one in self.partials():
            fd = os.open(one, os.O_RDONLY)
            try:
                found = journal.read_journal(fd)
            finally:
                os.close(fd)
            if found is not None:
                return len(found.in_place)
        return 0

    def begin(self, *more: str) -> subprocess.Popen[str]:
        """Starts the transfer, and waits until a few blocks are in place."""
        job = self.a.start(*self.command, *SLOW, *more)
        wait_for(lambda: self.blocks_in_place() >= 3 or job.poll() is not None, "first blocks")
        assert job.poll() is None, finish(job)
        return job

    def again(self, least: int) -> None:
        """Repeats the command, which continues and reports that."""
        assert not self.target.exists()
        in_place = self.blocks_in_place()
        assert in_place >= least
        before = self.receiver.status()["counters"]["rx_bytes"]
        done = self.a.ctl(*self.command, "--block-bytes", "128KiB", "--json")
        moved = self.receiver.status()["counters"]["rx_bytes"] - before
        found = json.loads(done.stdout)
        assert found["resumed_bytes"] >= in_place * BLOCK
        assert SIZE - found["resumed_bytes"] <= moved < SIZE - found["resumed_bytes"] + 256 * 1024
        assert self.target.read_bytes() == self.data
        assert self.partials() == []

    @property
    def receiver(self) -> Host:
        """Returns the receiving host."""
        return self.a if self.way == "get" else self.b


both = pytest.mark.parametrize("way", ["get", "put"])


@both
def test_resume__interrupted(pair: tuple[Host, Host], way: str) -> None:
    one = Pair(*pair, way)
    job = one.begin()
    job.send_signal(signal.SIGINT)
    status, _, errors = finish(job)
    assert status == 130
    assert "bytes are kept; run the same command to resume" in errors
    one.again(3)


@both
def test_resume__command_killed(pair: tuple[Host, Host], way: str) -> None:
    one = Pair(*pair, way)
    job = one.begin()
    job.kill()
    finish(job)
    one.again(3)


@both
@pytest.mark.parametrize("whose", ["own", "peer"])
def test_resume__daemon_killed(pair: tuple[Host, Host], way: str, whose: str) -> None:
    one = Pair(*pair, way)
    job = one.begin()
    host = one.a if whose == "own" else one.b
    pid = host.pid
    os.kill(pid, signal.SIGKILL)
    status, _, errors = finish(job)
    assert status == 1, errors
    wait_for(lambda: not alive(pid), "the end of carefuld")
    host.up()
    one.again(3)
    log = (one.b if whose == "own" else one.a).log
    assert log.count("another process has its address now") == 1
    assert "Success" not in log


@pytest.mark.parametrize("whose", ["own", "peer"])
def test_outlast__daemon_killed_and_up_again(pair: tuple[Host, Host], whose: str) -> None:
    """The command continues by itself after the blocks in place."""
    one = Pair(*pair, "get")
    os.truncate(one.source, 6 * MIB)
    job = one.begin("--outlast", "60s", "--json")
    host = one.a if whose == "own" else one.b
    pid = host.pid
    os.kill(pid, signal.SIGKILL)
    assert job.poll() is None
    wait_for(lambda: not alive(pid), "the end of carefuld")
    host.up()
    status, out, errors = finish(job, 110)
    assert status == 0, errors
    found = json.loads(out)
    if whose == "own" or errors:  # a peer that returns at once is asked again, only once
        assert "continues if the host is back within 60 s" in errors
        assert found["files"][0]["resumed_bytes"] >= 3 * BLOCK
    else:
        assert found["files"][0]["retries"] > 0
    assert one.target.read_bytes() == one.data[: 6 * MIB]
    assert one.partials() == []


@both
def test_resume__link_down(pair: tuple[Host, Host], way: str) -> None:
    """While the link is down nothing moves; the user interrupts, and continues when it is back."""
    one = Pair(*pair, way)
    job = one.begin()
    one.a.lab.run("h2", "ip", "link", "set", "eth1", "down")
    job.send_signal(signal.SIGINT)
    status, _, _ = finish(job)
    assert status == 130
    one.a.lab.run("h2", "ip", "link", "set", "eth1", "up")
    one.again(3)


@both
def test_resume__source_changed(pair: tuple[Host, Host], way: str) -> None:
    one = Pair(*pair, way)
    job = one.begin()
    job.kill()
    finish(job)
    make_file(one.source, SIZE, seed=2)
    done = one.a.ctl(*one.command, check=False)
    assert done.returncode == 1
    assert "changed since its transfer began" in done.stderr
    assert "--restart starts over" in done.stderr
    assert not one.target.exists()
    one.a.ctl(*one.command, "--restart")
    assert one.target.read_bytes() == one.source.read_bytes()
    assert one.partials() == []
