"""Interrupted transfers and the same command again: what moves, and what is refused."""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file import partial_file
from careful.transfer.file.find_partials import find_local
from careful.transfer.file.journal import NAME, Identity, Journal, continued, read_journal
from careful.transfer.file.resumable import ResumablePartial
from careful.transfer.options import Options, Progress
from fake_daemon import DiedError, FakeDaemon

BLOCK = 4096
BLOCKS = 10
DATA = os.urandom(BLOCK * BLOCKS - 100)
MOVES = (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE)


class Ends(transfers.OneFile):
    """The two ends of one direction: source, target, and counts."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
        super().__init__(way, route, daemon, tmp_path, DATA)
        self.notes: list[str] = []
        self.present = 0

    def run(self, **more: Any) -> Any:
        ends = self

        class Watch(Progress):
            def note(self, text: str) -> None:
                ends.notes.append(text)

            def present(self, nbytes: int) -> None:
                ends.present += nbytes

        options = Options(**({"block_bytes": BLOCK, "blocks_in_flight": 1} | more))
        return self.move(options, Watch())

    def die_after(self, blocks: int) -> Callable[[], int]:
        """Makes carefuld die after this many blocks. Returns a function that counts moved ones."""
        moved = 0

        def fault(question: Any) -> int:
            nonlocal moved
            if question.op in MOVES and question.bytes >= 1000 and question.bytes % 2:
                return 0  # a journal's tail
            if question.op in MOVES and question.region_off < len(DATA):
                moved += 1
                if moved == blocks + 1:
                    raise DiedError
            return 0

        self.daemon.fault = fault
        return lambda: moved

    def partials(self) -> list[Path]:
        return [one for one in self.target.parent.iterdir() if NAME.match(one.name)]

    def break_off(self, blocks: int = 4) -> None:
        """Interrupts a transfer when this many blocks are in place."""
        self.die_after(blocks)
        with pytest.raises(CarefulError, match=r"carefuld ended.*; run the same command to resume"):
            self.run()
        assert not self.target.exists()
        assert len(self.partials()) == 1


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    return Ends(request.param, route, daemon, tmp_path)


def test_resume__only_missing_blocks(ends: Ends) -> None:
    ends.break_off(4)
    moves = ends.die_after(1000)
    report = ends.run()
    assert moves() == BLOCKS - 4
    assert report.resumed_bytes == (BLOCKS - moves()) * BLOCK == ends.present
    assert ends.target.read_bytes() == DATA
    assert ends.partials() == []
    # The digest is that of an uninterrupted transfer.
    whole = ends.run(replace=True)
    assert report.files[0].digest == whole.files[0].digest
    assert whole.resumed_bytes == 0


def test_kept__the_message_agrees_with_partials(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    """The put ends before the peer has the whole journal."""
    (tmp_path / "a").write_bytes(DATA)
    stores = 0

    def fault(question: Any) -> int:
        nonlocal stores
        if question.op == lib.CAREFUL_IPC_REQUEST:
            if question.handler == lib.CAREFUL_BLOCK_COMMIT:
                stores = -1000
                return -errno.EIO
            return 0
        is_journal = question.op == lib.CAREFUL_IPC_STORE and question.region_off >= len(DATA)
        stores += is_journal
        return -errno.EIO if is_journal and stores > 1 else 0

    daemon.fault = fault
    options = Options(block_bytes=BLOCK, blocks_in_flight=4)
    report = transfers.put(route, [str(tmp_path / "a")], "a", False, options, Progress())
    (failure,) = report.failures
    assert (
        f"{len(DATA)} of {len(DATA)} bytes are kept; run the same command to resume" in failure[1]
    )
    (found,) = transfers.partials(route, "", False)
    assert (found.present_bytes, found.bytes) == (len(DATA), len(DATA))


def test_kept__its_size_is_unknown_without_the_journal(ends: Ends) -> None:
    """Once carefuld has ended, nobody knows whether the peer has the journal with the size."""
    ends.die_after(4)
    with pytest.raises(CarefulError) as caught:
        ends.run()
    known = f"{4 * BLOCK} of {len(DATA)} bytes are kept"
    text = known if ends.is_get else "the part is kept"
    assert f"; {text}; run the same command to resume" in str(caught.value)


def test_resume__nothing_in_place_leaves_nothing(ends: Ends) -> None:
    ends.die_after(0)
    with pytest.raises(CarefulError, match="carefuld ended"):
        ends.run()
    if ends.is_get:  # at the peer, carefuld's end leaves even an empty file
        assert ends.partials() == []
    ends.die_after(1000)
    assert ends.run().resumed_bytes == 0
    assert ends.target.read_bytes() == DATA


def test_resume__source_changed(ends: Ends) -> None:
    ends.break_off()
    ends.source.write_bytes(DATA + b"more")
    moves = ends.die_after(1000)
    report = ends.run()
    assert "changed since its transfer began" in report.failures[0][1]
    assert "--restart starts over" in report.failures[0][1]
    assert moves() == 0
    assert not ends.target.exists()
    assert len(ends.partials()) == 1
    assert ends.run(restart=True).failures == []
    assert ends.target.read_bytes() == DATA + b"more"
    assert ends.partials() == []


def test_resume__source_changed_of_a_sync(ends: Ends) -> None:
    """The transfer starts over: sync has no option with which a user could ask for that."""
    ends.break_off(4)
    ends.die_after(1000)
    assert ends.run(restart_changed=True).resumed_bytes == 4 * BLOCK
    ends.target.unlink()
    ends.break_off(4)
    ends.die_after(1000)
    ends.source.write_bytes(DATA + b"more")
    report = ends.run(restart_changed=True)
    assert (report.failures, report.resumed_bytes) == ([], 0)
    assert ends.target.read_bytes() == DATA + b"more"
    assert ends.partials() == []


def test_resume__same_size_and_time_other_contents(ends: Ends) -> None:
    """Digests detect changes that attributes hide."""
    ends.break_off(4)
    before = ends.source.stat()
    other = b"\0" * (2 * BLOCK) + DATA[2 * BLOCK :]
    ends.source.write_bytes(other)
    os.utime(ends.source, ns=(before.st_atime_ns, before.st_mtime_ns))
    moves = ends.die_after(1000)
    report = ends.run()
    assert report.failures == []
    assert ends.target.read_bytes() == other
    assert moves() == BLOCKS - 2
    assert report.resumed_bytes == 2 * BLOCK


def test_resume__same_attributes_other_contents(ends: Ends) -> None:
    """For example a source written in place before a power failure: ext4 and xfs store times before
    contents. The target must not become a mixture.
    """
    ends.break_off(4)
    other = b"\0" * (2 * BLOCK) + DATA[2 * BLOCK :]
    ends.source.write_bytes(other)
    now = ends.source.stat()
    with ends.partials()[0].open("r+b") as file:
        was = read_journal(file.fileno())
        assert was
        same = replace(
            was.identity, mtime_ns=now.st_mtime_ns, ctime_ns=now.st_ctime_ns, inode=now.st_ino
        )
        found = Journal(same, BLOCK)
        for index in was.in_place:
            found.mark(index, was.digest(index) or 0)
        assert found.tail_bytes == was.tail_bytes
        file.seek(len(DATA))
        file.write(found.tail)
    ends.die_after(1000)
    report = ends.run()
    assert report.failures == []
    assert ends.target.read_bytes() == other
    assert report.resumed_bytes == 2 * BLOCK


@pytest.mark.parametrize("digest", [True, False])
def test_resume__damaged_partial(ends: Ends, digest: bool) -> None:
    """Blocks that differ from their journal, for example after a crash, are sent again."""
    ends.break_off(4)
    with ends.partials()[0].open("r+b") as file:
        file.seek(BLOCK)
        file.write(b"damaged")
    assert ends.run(digest=digest).resumed_bytes == 3 * BLOCK
    assert ends.target.read_bytes() == DATA


@pytest.mark.parametrize("cut", [1, 24, 600, 100_000])
def test_resume__damaged_journal(ends: Ends, cut: int) -> None:
    ends.break_off(4)
    one = ends.partials()[0]
    os.truncate(one, max(0, one.stat().st_size - cut))
    report = ends.run()
    assert (report.failures, report.resumed_bytes) == ([], 0)
    assert ends.target.read_bytes() == DATA


def test_resume__another_block_size(ends: Ends) -> None:
    ends.break_off(4)
    report = ends.run(block_bytes=2 * BLOCK)
    assert report.resumed_bytes == 4 * BLOCK
    assert ends.target.read_bytes() == DATA


def test_again__restart_holds_for_later_steps() -> None:
    """A second try continues with the first one's blocks, and drops blocks of another source."""
    now = Options(restart=True).for_retry()
    assert (now.restart, now.restart_changed) == (False, True)
    assert now.for_retry() == now
    assert Options().for_retry() == Options()


def test_resume__restart(ends: Ends) -> None:
    ends.break_off(4)
    report = ends.run(restart=True)
    assert report.resumed_bytes == 0
    assert ends.target.read_bytes() == DATA
    assert ends.partials() == []


def test_resume__another_target_is_another_transfer(ends: Ends) -> None:
    ends.break_off(4)
    ends.target = ends.target.with_name("c")
    if ends.is_get:
        assert ends.run().resumed_bytes == 0
        assert ends.target.read_bytes() == DATA
    else:
        report = transfers.put(
            ends.route, [str(ends.source)], "c", False, Options(block_bytes=BLOCK), Progress()
        )
        assert report.resumed_bytes == 0


def test_resume__target_appeared(ends: Ends) -> None:
    ends.break_off(4)
    ends.target.write_bytes(b"old")
    assert "exists" in ends.run().failures[0][1]
    assert len(ends.partials()) == 1
    assert ends.run(replace=True).resumed_bytes == 4 * BLOCK
    assert ends.target.read_bytes() == DATA


@pytest.mark.parametrize("late", [False, True])
def test_resume__target_appeared_at_the_end(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """All blocks have arrived: they are kept, and the error says so."""
    if late and not ends.is_get:
        pytest.skip("test_block_partial.c has it")

    def appear() -> None:
        ends.target.write_bytes(b"old")

    if late:
        rename = partial_file.rename_new
        monkeypatch.setattr(partial_file, "rename_new", lambda *names: (appear(), rename(*names)))
    else:

        def fault(question: Any) -> int:
            if question.op in MOVES and question.region_off == (BLOCKS - 1) * BLOCK:
                appear()
            return 0

        ends.daemon.fault = fault
    [(_, text)] = ends.run().failures
    monkeypatch.undo()
    assert "exists" in text
    assert f"{len(DATA)} of {len(DATA)} bytes are kept; run the same command to resume" in text
    assert [one.stat().st_mode & 0o777 for one in ends.partials()] == [0o600]
    moves = ends.die_after(1000)
    assert ends.run(replace=True).resumed_bytes == len(DATA)
    assert moves() == 0
    assert ends.target.read_bytes() == DATA
    assert ends.partials() == []


def test_put__refused_at_the_end(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """The error does not say that the peer keeps blocks that it has removed."""
    ends = Ends("put", route, daemon, tmp_path)

    def fault(question: Any) -> int:
        is_request = question.op == lib.CAREFUL_IPC_REQUEST
        if not (is_request and question.handler == lib.CAREFUL_BLOCK_COMMIT):
            return 0
        [handle] = daemon.handles.values()
        assert handle.temporary is not None
        handle.temporary.unlink()
        os.close(handle.fd)
        daemon.handles.clear()
        return -errno.EIO

    daemon.fault = fault
    [(_, text)] = ends.run().failures
    assert "kept" not in text


def test_resume__two_at_a_time(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_file, "LOCK_S", 0.2)
    other: list[Any] = []

    def fault(question: Any) -> int:
        if question.op in MOVES and not other and ends.is_get:
            other.append(None)
            fd = os.open(ends.partials()[0], os.O_RDWR)
            with pytest.raises(CarefulError, match="another transfer of this file is in progress"):
                partial_file.lock(fd, "b")
            os.close(fd)
        return 0

    ends.daemon.fault = fault
    if not ends.is_get:
        ends.daemon.fault = lambda q: (
            -errno.EBUSY
            if q.op == lib.CAREFUL_IPC_REQUEST and q.handler == lib.CAREFUL_BLOCK_OPEN
            else 0
        )
        assert "another transfer of this file" in ends.run().failures[0][1]
        return
    assert ends.run().failures == []
    assert other


def test_get__partial_is_a_link(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    """A link of another user in the partial file's place is not followed."""
    ends = Ends("get", route, daemon, tmp_path)
    ends.break_off(4)
    one = ends.partials()[0]
    victim = tmp_path / "victim"
    one.rename(victim)
    os.link(victim, one)
    assert "is not a partial file" in ends.run().failures[0][1]
    one.unlink()
    one.symlink_to(victim)
    before = victim.read_bytes()
    assert ends.run().failures != []
    assert victim.read_bytes() == before


def test_journal__round_trip() -> None:
    journal = Journal(Identity("h2:\udcff\n", 10_000, 1, 2, 3), 4096)
    assert journal.count == 3
    journal.mark(0, 7)
    journal.mark(2, 0)
    again = Journal.parse(journal.tail, 10_000 + journal.tail_bytes)
    assert again is not None
    assert again.identity == journal.identity
    assert (again.in_place, again.digest(0), again.digest(1)) == ([0, 2], 7, None)
    assert again.bytes_in_place == 4096 + 10_000 - 8192
    assert len(journal.tail) == journal.tail_bytes


def test_journal__damaged(tmp_path: Path) -> None:
    tail = Journal(Identity("x", 10_000, 1, 2, 3), 4096).tail
    size = 10_000 + len(tail)
    assert Journal.parse(tail, size) is not None
    assert Journal.parse(tail[1:], size) is None
    assert Journal.parse(tail[:-1] + b"\xff", size) is not None  # 4351: as many blocks
    assert Journal.parse(b"\0" * len(tail), size) is None
    for at in range(len(tail)):
        broken = bytearray(tail)
        broken[at] ^= 0xFF
        Journal.parse(bytes(broken), size)  # raises nothing
    (tmp_path / "x").write_bytes(b"x" * 9_999 + tail)
    fd = os.open(tmp_path / "x", os.O_RDONLY)
    assert read_journal(fd) is None
    os.close(fd)


_SHAPE = {"source": "x", "bytes": 10_000, "mtime_ns": 1, "ctime_ns": 2, "inode": 3}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "[]",
        "{}",
        json.dumps(_SHAPE | {"bytes": "10000"}),
        json.dumps(_SHAPE | {"bytes": 10_000.0}),
        json.dumps(_SHAPE | {"bytes": None}),
        json.dumps(_SHAPE | {"source": ["x"]}),
        json.dumps(_SHAPE | {"more": 1}),
    ],
    ids=["deep", "list", "nothing", "text", "float", "null", "source", "more"],
)
def test_journal__crafted(tmp_path: Path, text: str) -> None:
    entries = bytes(3 * 16)
    footer = struct.pack(">8sQII", b"careful1", 48 + len(text) + 24, len(text), 4096)
    path = tmp_path / f".x.careful-{1:016x}.part"
    path.write_bytes(bytes(10_000) + entries + text.encode() + footer)
    (found,) = find_local(str(tmp_path), False)
    assert (found.state, found.bytes) == ("leftover", None)


def test_journal__a_tail_as_large_as_the_file(tmp_path: Path) -> None:
    path, size = tmp_path / "x", 1 << 43
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - 24)
        file.write(struct.pack(">8sQII", b"careful1", size, 1 << 30, 1))
    with path.open("rb") as file:
        assert read_journal(file.fileno()) is None


def test_continued__names_the_change() -> None:
    was = Identity("x", 10_000, 1, 2, 3)
    journal, options = Journal(was, BLOCK), Options()
    with pytest.raises(CarefulError, match=r"^x: changed since its transfer began; --restart"):
        continued(journal, replace(was, mtime_ns=9), options)
    with pytest.raises(CarefulError, match=r"began \(10000 bytes then, 9 now\); --restart"):
        continued(journal, replace(was, bytes=9), options)


@pytest.mark.parametrize("digest", [True, False])
def test_resume__blocks_without_digests(ends: Ends, digest: bool) -> None:
    """Blocks without digests are compared with the source before they count."""
    ends.die_after(4)
    with pytest.raises(CarefulError):
        ends.run(digest=False)
    with ends.partials()[0].open("r+b") as file:
        file.seek(BLOCK)
        file.write(b"damaged")
    ends.daemon.fault = lambda question: 0
    report = ends.run(digest=digest)
    assert ends.target.read_bytes() == DATA
    assert report.resumed_bytes == 3 * BLOCK
    assert report.files[0].digest == ends.run(digest=digest, replace=True).files[0].digest


@pytest.mark.parametrize("fsync", ["file", "none"])
def test_get__synced_before_the_journal_goes(
    route: Route, daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    """A transfer that is interrupted during the sync, which may take minutes, continues from
    there."""
    sync, found = os.fsync, []

    def watch(fd: int) -> None:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            left = read_journal(fd)
            found.append(left and left.bytes_in_place)
        sync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    Ends("get", route, daemon, tmp_path).run(fsync=fsync)
    assert found == ([len(DATA), None] if fsync == "file" else [])


def test_get__partial_belongs_to_another_user(
    route: Route, daemon: FakeDaemon, tmp_path: Path
) -> None:
    """A file of another user in the partial file's place is not continued."""
    ends = Ends("get", route, daemon, tmp_path)
    ends.break_off(4)
    if os.geteuid():
        pytest.skip("needs root, to give a file away")
    os.chown(ends.partials()[0], 1234, -1)
    assert "is not a partial file" in ends.run().failures[0][1]


def test_partial__of_a_file_that_another_transfer_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer that waited for the partial file does not begin another."""
    path = tmp_path / "a"
    note = Journal(Identity("h2:a", BLOCK, 1, 1, 1), BLOCK)

    def begin() -> ResumablePartial:
        return ResumablePartial(str(path), 0o600, note, 1, Options())

    first = begin()
    monkeypatch.setattr(partial_file, "lock", lambda *_: first.fd < 0 or first.commit(False))
    with pytest.raises(FileExistsError):
        begin()
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
