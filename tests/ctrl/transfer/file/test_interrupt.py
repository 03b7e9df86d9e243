"""Ctrl-C during the read or copy of a large file takes effect soon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful.daemon.route import Route
from careful.errors import EndedBySignal
from careful.transfer import tasks
from careful.transfer.file import compare
from careful.transfer.file.find_partials import find_local
from careful.transfer.file.partial_file import Partial, digest_of_range
from careful.transfer.options import Options, Progress
from careful.transfer.pace import RateLimit

BLOCK = 4096
DATA = os.urandom(40 * BLOCK)


class Interrupted(Progress):
    """Ends its transfer after this many pieces, like SIGTERM; keeps its messages."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.notes: list[str] = []
        self.names: list[str] = []

    def moved(self, nbytes: int) -> None:
        self.pieces -= 1
        if not self.pieces:
            os.kill(os.getpid(), signal.SIGTERM)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self, name: str) -> None:
        self.names.append(name)


def test_verify__interrupted(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (export / "f").write_bytes(DATA)
    (tmp_path / "f").write_bytes(DATA)
    count = 0

    def digest(*given: Any) -> int:
        nonlocal count
        count += 1
        if count == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return digest_of_range(*given)

    monkeypatch.setattr(tasks, "SLICE_BYTES", 4 * BLOCK)
    monkeypatch.setattr(compare, "digest_of_range", digest)
    with pytest.raises(KeyboardInterrupt):
        transfers.verify(route, "f", str(tmp_path / "f"), False, BLOCK)
    assert 2 <= count <= 8
    assert transfers.verify(route, "f", str(tmp_path / "f"), False, BLOCK).differences == []
    assert count >= 42


def test_in_thread__cancelled_again(tmp_path: Path) -> None:
    """A thread's buffer is released when the thread has ended, even after several cancellations."""
    begin, end = threading.Event(), threading.Event()

    def work() -> None:
        begin.set()
        end.wait(60)

    async def run() -> bool:
        task = asyncio.create_task(tasks.in_thread(work))
        await asyncio.to_thread(begin.wait)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        ended_early = task.done()
        end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended_early

    assert not asyncio.run(run())


@pytest.mark.parametrize(("blocks", "is_kept"), [(1, False), (4, False), (4, True)])
def test_get__interrupted_while_its_partial_file_is_opened(
    route: Route,
    export: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    is_kept: bool,
) -> None:
    """The partial file neither stays open and locked nor is left behind."""
    (export / "f").write_bytes(DATA[: blocks * BLOCK])
    target, options = tmp_path / "g", Options(block_bytes=BLOCK, blocks_in_flight=1)
    if is_kept:
        with pytest.raises(EndedBySignal):
            transfers.get(route, ["f"], str(target), False, options, Interrupted(3))
    before = sorted(path.name for path in tmp_path.iterdir())
    opened = Partial._prepare

    def prepare(part: Partial, *given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)  # the event loop handles the signal meanwhile
        opened(part, *given)

    monkeypatch.setattr(Partial, "_prepare", prepare)
    with pytest.raises(EndedBySignal):
        transfers.get(route, ["f"], str(target), False, options, Progress())
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    report = transfers.get(route, ["f"], str(target), False, options, Progress())
    assert report.failures == []
    assert (report.resumed_bytes > 0) == is_kept


@pytest.mark.parametrize("nbytes", [0, 1, 3 * BLOCK, 25 * BLOCK + 7, 40 * BLOCK])
def test_copy__in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    monkeypatch.setattr(compare, "SLICE_BYTES", 3 * BLOCK)
    old = os.open(tmp_path / "old", os.O_RDWR | os.O_CREAT)
    new = os.open(tmp_path / "new", os.O_RDWR | os.O_CREAT)
    os.pwrite(old, DATA[: 10 * BLOCK], 0)
    os.pwrite(old, DATA[30 * BLOCK :], 30 * BLOCK)  # a hole between
    os.ftruncate(new, nbytes)
    asyncio.run(compare.copy_into(old, new, nbytes, "new"))
    assert os.pread(new, len(DATA), 0) == os.pread(old, nbytes, 0)
    if nbytes == len(DATA):
        assert os.fstat(new).st_blocks == os.fstat(old).st_blocks
    os.close(old)
    os.close(new)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_get__a_signal_that_our_parent_ignores(
    route: Route, export: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Under nohup a signal stays ignored; otherwise it ends the transfer."""

    class Watch(Progress):
        def moved(self, nbytes: int) -> None:
            os.kill(os.getpid(), number)

    def get() -> None:
        transfers.get(route, ["f"], str(tmp_path / "f"), False, Options(block_bytes=BLOCK), Watch())

    (export / "f").write_bytes(DATA)
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(EndedBySignal):
            get()
        signal.signal(number, signal.SIG_IGN)
        get()
    finally:
        signal.signal(number, before)
    assert (tmp_path / "f").read_bytes() == DATA


@pytest.mark.parametrize("way", ["get", "put"])
@pytest.mark.parametrize(
    ("blocks", "pieces", "is_kept"), [(20, 24, True), (20, 3, False), (1, 3, False)]
)
def test_rate_limit__interrupted(
    route: Route,
    export: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    blocks: int,
    pieces: int,
    is_kept: bool,
) -> None:
    """If eight blocks advanced in parallel, none would be complete and kept."""

    async def take(limit: RateLimit, nbytes: int) -> None:
        assert nbytes <= BLOCK

    monkeypatch.setattr(RateLimit, "take", take)
    limit = RateLimit(10 * BLOCK)
    options = Options(block_bytes=16 * BLOCK, limit=limit)
    (export if way == "get" else tmp_path).joinpath("f").write_bytes(bytes(16 * BLOCK * blocks))
    watch = Interrupted(pieces)
    move, source, to = (
        (transfers.get, "f", str(tmp_path / "g"))
        if way == "get"
        else (transfers.put, str(tmp_path / "f"), "g")
    )
    with pytest.raises(EndedBySignal):
        move(route, [source], to, False, options, watch)
    target = tmp_path if way == "get" else export
    [found] = find_local(str(target), False) or [None]
    assert watch.names == []
    [note] = watch.notes
    if is_kept:
        assert found is not None
        assert 0 < (found.present_bytes or 0) < pieces * BLOCK
        assert f"{found.present_bytes} of {16 * BLOCK * blocks} bytes are kept" in note
    else:
        assert found is None
        assert "g: nothing is kept (no block of 64 KiB was complete)" in note


#: Sends SIGINT when Python searches for a module.
_EARLY = """
import os, signal, sys

_, module, where = sys.argv

class Finder:
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

if where == "nohup":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Finder())
from careful.cli.start import main
sys.argv[1:] = ["ls", "h2:"]
main()
"""


@pytest.mark.parametrize("module", ["click", "careful.control.options.config"])
def test_start__interrupted(module: str) -> None:
    """During imports, Ctrl-C gives the usual line and status, without a traceback."""
    argv = [sys.executable, "-c", _EARLY, module]
    done = subprocess.run([*argv, "terminal"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "carefulctl: interrupted\n")
    done = subprocess.run([*argv, "nohup"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "interrupted" not in done.stderr
