"""Trees whose transfer is interrupted, and the same command again: what comes, what does not."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file import journal
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Silent
from careful.transfer.partials import find_local
from careful.transfer.protocol.batch import Item, RemoteTree
from careful.transfer.tree import copy, marks
from careful.transfer.tree.marks import LocalMark, RemoteMark
from compare import assert_equal
from fake_daemon import MOVES, FakeDaemon

BLOCK = 16384
PLAIN = Options(block_bytes=BLOCK, files_in_flight=1, blocks_in_flight=1, fsync="none")
ARCHIVE = replace(PLAIN, preserve=True, links=True, hard_links=True, xattrs=True)
LARGE = 5 * BLOCK + 1


class Ends:
    """A tree on one side, where it goes, and a peer that dies in time."""

    def __init__(self, way: str, route: Route, daemon: FakeDaemon, here: Path) -> None:
        self.way, self.route, self.daemon = way, route, daemon
        there = daemon.root
        self.source, self.target = (there, here) if way == "get" else (here, there)
        self.source, self.target = self.source / "tree", self.target / "new"
        for name in ("a/small", "b/small", "c/d/small"):
            self.write(name, name.encode())
        for name in ("a/large", "b/large", "large"):
            self.write(name, os.urandom(LARGE))
        (self.source / "b/link").symlink_to("large")
        os.link(self.source / "b/large", self.source / "c/again")
        (self.source / "c").chmod(0o555)
        self.told: list[str] = []

    def write(self, name: str, data: bytes) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(0, 1_000_000_007))
        return path

    def run(self, options: Options, into: str | None = None) -> Any:
        told = self.told

        class Watch(Silent):
            def note(self, text: str) -> None:
                told.append(text)

        if self.way == "get":
            target = str(self.target) if into is None else str(self.target.parent / into)
            return transfers.get(self.route, ["tree"], target, True, options, Watch())
        target = self.target.name if into is None else into
        return transfers.put(self.route, [str(self.source)], target, True, options, Watch())

    def moves(self, deadly: int = 1 << 30) -> list[int]:
        """How often blocks have moved from now on; the peer dies at one of these."""
        return self.daemon.moves((BLOCK, LARGE % BLOCK), deadly)

    def break_off(self, options: Options, after: int = 9) -> None:
        self.moves(after)
        with pytest.raises(CarefulError, match="the same command goes on"):
            self.run(options)

    def partials(self) -> list[Path]:
        return [path for path in self.target.rglob("*") if is_partial(path.name)]


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    (tmp_path / "here").mkdir()
    return Ends(request.param, route, daemon, tmp_path / "here")


@pytest.mark.parametrize("options", [PLAIN, ARCHIVE], ids=["plain", "archive"])
@pytest.mark.parametrize("force", [False, True])
def test_again__what_came_stays(ends: Ends, options: Options, force: bool) -> None:
    """Large files of six blocks, three or, without hard links, four; the peer dies at the ninth."""
    options = replace(options, replace=force)
    ends.break_off(options)
    moves = ends.moves()
    report = ends.run(options)
    assert report.failures == []
    # The first file, and two blocks of the second, are there.
    assert len(moves) == (18 if options.links else 24) - 8
    assert [nbytes for _, nbytes in report.brought if nbytes > BLOCK] == [LARGE]
    assert report.resumed_bytes == LARGE + 2 * BLOCK + sum(
        nbytes for _, nbytes in report.brought if nbytes <= BLOCK
    )
    assert report.files_count + len(report.brought) == 6 + (not options.links)
    assert ends.partials() == []
    assert ends.target.is_dir()
    assert not (ends.target / "tree").exists()
    if options.links:
        assert_equal(ends.source, ends.target)
    else:
        assert (ends.target / "c").stat().st_mode & 0o777 == 0o555
        assert (ends.target / "b/large").read_bytes() == (ends.source / "b/large").read_bytes()
    # Once more it is another command's: beside it, as cp does.
    if not force:
        ends.run(options)
        assert (ends.target / "tree").is_dir()


def test_again__update_knows_what_came(ends: Ends) -> None:
    """A file that is complete has its time: -a -u does not send it again."""
    options = replace(ARCHIVE, update=True, replace=True)
    ends.break_off(options)
    moves = ends.moves()
    report = ends.run(options)
    assert (report.failures, len(moves)) == ([], 18 - 8)
    assert LARGE in [nbytes for _, nbytes in report.equal]
    assert_equal(ends.source, ends.target)


def test_again__checksum(ends: Ends) -> None:
    options = replace(ARCHIVE, checksum=True, replace=True)
    ends.break_off(options)
    moves = ends.moves()
    report = ends.run(options)
    assert (report.failures, len(moves)) == ([], 18 - 8)
    assert_equal(ends.source, ends.target)


def test_again__into_what_was_there(ends: Ends) -> None:
    """What the target had before the transfer is none of what it brought."""
    (ends.target / "a").mkdir(parents=True)
    (ends.target / "a/large").write_bytes(bytes(LARGE))
    ends.target = ends.target.parent / "tree"
    (ends.target.parent / "new").rename(ends.target)
    ends.moves(9)
    with pytest.raises(CarefulError, match="goes on"):
        ends.run(PLAIN, into="")
    ends.moves()
    (ends.target / "a/large").chmod(0o600)  # its ctime is later than the mark
    report = ends.run(PLAIN, into="")
    assert [Path(name).name for name, _ in report.failures] == ["large"]
    assert "exists already" in report.failures[0][1]
    assert (ends.target / "a/large").read_bytes() == bytes(LARGE)
    assert (ends.target / "large").read_bytes() == (ends.source / "large").read_bytes()
    assert ends.partials() == []


def _first_large(ends: Ends) -> str:
    """The one that came as a whole."""
    found = [p for p in ends.target.rglob("*") if p.is_file() and p.name in ("large", "again")]
    assert len(found) == 1
    return str(found[0].relative_to(ends.target))


@pytest.mark.parametrize("size", [LARGE, LARGE + 1])
def test_again__source_changed(ends: Ends, size: int) -> None:
    ends.break_off(PLAIN)
    name = _first_large(ends)
    ends.write(name, os.urandom(size))
    report = ends.run(PLAIN)
    names = [name for name, _ in report.failures]
    assert all(Path(one).name == Path(name).name for one in names)
    assert names
    assert "changed, or made, since the transfer began" in report.failures[0][1]


def test_again__restart(ends: Ends) -> None:
    """--restart replaces what the interrupted transfer brought, and nothing else."""
    ends.break_off(PLAIN)
    name = _first_large(ends)
    ends.write(name, os.urandom(LARGE))
    ends.break_off(PLAIN, 3)
    moves = ends.moves()
    report = ends.run(replace(PLAIN, restart=True))
    assert (report.failures, report.brought, report.resumed_bytes) == ([], [], 0)
    assert len(moves) >= 18
    assert (ends.target / name).read_bytes() == (ends.source / name).read_bytes()
    assert ends.partials() == []


@pytest.mark.parametrize("equal", [False, True])
def test_again__a_file_of_the_users(ends: Ends, equal: bool) -> None:
    """Made since, where one was to come: as without an interruption it stays, and is named."""
    ends.break_off(PLAIN)
    missing = [
        path.relative_to(ends.source)
        for path in ends.source.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not (ends.target / path.relative_to(ends.source)).exists()
    ]
    mine = ends.target / missing[0]
    data = (ends.source / missing[0]).read_bytes() if equal else b"mine"
    mine.write_bytes(data)
    report = ends.run(PLAIN)
    assert [Path(name).name for name, _ in report.failures] == [mine.name] * (not equal)
    assert mine.read_bytes() == data
    for name in missing[1:]:
        assert (ends.target / name).read_bytes() == (ends.source / name).read_bytes()


@pytest.mark.parametrize("delete", [False, True])
def test_again__restart_spares_what_was_there(ends: Ends, delete: bool) -> None:
    """A file where a directory is to be, and the other way round: neither was brought."""
    top = ends.target.parent / "tree"
    (top / "large").mkdir(parents=True)
    (top / "large/own").write_bytes(b"mine")
    (top / "a").write_bytes(b"mine")
    (top / "link").write_bytes(b"mine")
    ends.moves(3)
    with pytest.raises(CarefulError, match="goes on"):
        ends.run(PLAIN, into="")
    ends.moves()
    for run in (replace(PLAIN, restart=True, delete=delete), PLAIN):
        report = ends.run(run, into="")
        assert {Path(name).name for name, _ in report.failures} >= {"a", "large"}
        assert (top / "a").read_bytes() == b"mine"
        assert (top / "large/own").read_bytes() == b"mine"
        assert (top / "b/large").read_bytes() == (ends.source / "b/large").read_bytes()


@pytest.mark.parametrize("force", [False, True])
def test_again__digests_decide(ends: Ends, force: bool) -> None:
    """Size and every time of a brought file say that it is the same, and it is not."""
    options = replace(PLAIN, replace=force)
    latest = ends.write("latest", b"")
    time.sleep(0.03)  # more than two ticks of the kernel's clock for files
    latest.chmod(0o600)
    ends.break_off(options)
    name = _first_large(ends)
    (ends.target / name).write_bytes(bytes(LARGE))  # as after a power failure
    small = next(path for path in ends.target.rglob("small"))
    small.write_bytes(bytes(small.stat().st_size))
    report = ends.run(options)
    assert (report.failures == []) == force
    if not force:
        assert {Path(one).name for one, _ in report.failures} == {Path(name).name, "small"}
        assert ends.run(replace(options, restart=True)).failures == []
    for one in (name, str(small.relative_to(ends.target))):
        assert (ends.target / one).read_bytes() == (ends.source / one).read_bytes()
    assert ends.partials() == []


def test_again__a_mark_of_an_update(ends: Ends) -> None:
    """What was there before -u stays known as such to a run without."""
    top = ends.target.parent / "tree"
    (top / "a").mkdir(parents=True)
    (top / "a/large").write_bytes(bytes(LARGE))
    os.utime(top / "a/large", ns=(0, 1_000_000_007))  # equal, as -u sees it
    ends.moves(3)
    with pytest.raises(CarefulError, match="goes on"):
        ends.run(replace(PLAIN, update=True, replace=True), into="")
    ends.moves()
    report = ends.run(replace(PLAIN, restart=True), into="")
    assert [(Path(name).name, "exists already" in why) for name, why in report.failures] == [
        ("large", True)
    ]
    assert (top / "a/large").read_bytes() == bytes(LARGE)


def test_again__refused_and_restarted(ends: Ends) -> None:
    """The line says --restart: that works on the tree that was refused, after a whole run, too."""
    ends.break_off(PLAIN)
    name = _first_large(ends)
    ends.write(name, os.urandom(LARGE))
    for _ in range(2):
        assert "--restart" in ends.run(PLAIN).failures[0][1]
        assert not (ends.target / "tree").exists()
    assert ends.run(replace(PLAIN, restart=True)).failures == []
    assert (ends.target / name).read_bytes() == (ends.source / name).read_bytes()
    assert ends.partials() == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_again__cause_mended(ends: Ends, code: int) -> None:
    """One file fails; the same command brings it once that is mended, and nothing else."""

    def fault(question: Any) -> int:
        moves = question.op in MOVES and question.bytes in (BLOCK, LARGE % BLOCK)
        return -code if moves else 0

    ends.daemon.fault = fault
    assert ends.run(PLAIN).failures != []
    ends.daemon.fault = lambda question: 0
    report = ends.run(PLAIN)
    assert (report.failures, len(report.brought)) == ([], 3)
    assert not (ends.target / "tree").exists()
    assert ends.partials() == []


def test_again__synced_before_the_mark_goes(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """--fsync end: what ends the run while it syncs leaves a tree that goes on."""

    async def dying(*_: object) -> None:
        raise CarefulError(errno.ENOTCONN, "carefuld ended", "test")

    options = replace(PLAIN, fsync="end")
    with monkeypatch.context() as patch:
        patch.setattr(copy, "sync_file_system", dying)
        with pytest.raises(CarefulError, match="goes on"):
            ends.run(options)
    assert len(ends.partials()) == 1
    report = ends.run(options)
    assert (report.failures, len(report.brought)) == ([], 7)
    assert ends.partials() == []


@pytest.mark.parametrize("fsync", ["end", "none"])
def test_mark__synced(ends: Ends, fsync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything else comes, unless nothing is to be."""
    done: list[str] = []
    kind = LocalMark if ends.way == "get" else RemoteMark
    begun, synced, ran = kind.begin, os.fsync, RemoteTree.run

    def fsync_told(fd: int) -> None:
        done.append("synced")
        synced(fd)

    async def run_told(tree: RemoteTree, data: bytes, flags: int, answer: bool = True) -> bytes:
        done.append("synced" if data == Item(lib.CAREFUL_ITEM_SYNC, b".").packed() else "run")
        return await ran(tree, data, flags, answer)

    monkeypatch.setattr(os, "fsync", fsync_told)
    monkeypatch.setattr(RemoteTree, "run", run_told)

    async def begin(mark: Any, what: Any) -> None:
        await begun(mark, what)
        done.append("begun")

    monkeypatch.setattr(kind, "begin", begin)
    assert ends.run(replace(PLAIN, fsync=fsync)).failures == []
    assert ("synced" in done[: done.index("begun")]) == (fsync == "end")


def test_again__touched_is_not_changed(ends: Ends) -> None:
    ends.break_off(PLAIN)
    name = _first_large(ends)
    (ends.source / name).chmod(0o640)
    moves = ends.moves()
    report = ends.run(PLAIN)
    assert (report.failures, len(moves)) == ([], 24 - 8)


def test_again__rehearsal(ends: Ends) -> None:
    ends.break_off(PLAIN)
    report = ends.run(replace(PLAIN, dry_run=True))
    assert report.failures == []
    assert LARGE in [nbytes for _, nbytes in report.brought]
    assert len(ends.partials()) == 2


def test_again__leftovers_go(ends: Ends) -> None:
    """Temporary files of the run that died go with the end of the one that goes on."""
    ends.break_off(PLAIN)
    left = ends.target / "a/.careful-00000000000000ff.part"
    left.write_bytes(b"half")
    states = {Path(one.path).name: one.state for one in find_local(str(ends.target), clean=False)}
    assert sorted(states.values()) == ["leftover", "resumable", "resumable"]
    assert states[left.name] == "leftover"
    assert ends.run(PLAIN).failures == []
    assert ends.partials() == []


def test_again__another_block_size(ends: Ends) -> None:
    """Files of one block need no partial file: what is left of these serves nobody."""
    ends.break_off(PLAIN)
    assert len(ends.partials()) == 2
    report = ends.run(replace(PLAIN, block_bytes=1 << 20))
    assert report.failures == []
    assert ends.partials() == []


def test_put_again__disk_full(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """What failed for want of room goes on later."""
    (tmp_path / "here").mkdir()
    ends, full = Ends("put", route, daemon, tmp_path / "here"), True

    def fault(question: Any) -> int:
        opens = question.op == lib.CAREFUL_IPC_REQUEST
        opens = opens and question.handler == lib.CAREFUL_BLOCK_COMMIT
        return -errno.ENOSPC if opens and full else 0

    ends.daemon.fault = fault
    assert len(ends.run(PLAIN).failures) == 4
    full = False
    report = ends.run(PLAIN)
    assert report.failures == []
    assert len(report.brought) == 3
    assert ends.partials() == []


def test_tree__partial_files_are_none_of_it(ends: Ends) -> None:
    ends.write("a/.x.careful-0123456789abcdef.part", b"x")
    ends.write(".careful-0123456789abcdef.part", b"x" * 100_000)
    report = ends.run(PLAIN)
    assert report.failures == []
    assert [kind for _, kind in report.skipped].count("partial file") == 2
    assert ends.partials() == []


def test_delete__partial_files_stay(ends: Ends) -> None:
    """They are for the transfers that go on with them; but not below what goes as a whole."""
    ends.run(ARCHIVE)
    kept = ends.target / "a/.x.careful-0123456789abcdef.part"
    kept.write_bytes(b"x")
    (ends.target / "gone").mkdir()
    (ends.target / "gone/.x.careful-0123456789abcdef.part").write_bytes(b"x")
    (ends.target / "a/gone").write_bytes(b"x")
    ends.target = ends.target.rename(ends.target.with_name("tree"))
    report = ends.run(replace(ARCHIVE, delete=True, update=True, replace=True), into="")
    assert report.failures == []
    assert len(report.deleted) == 3
    assert [path.name for path in ends.partials()] == [kept.name]


def test_again__in_the_last_moment(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is there, links too, but the mark: then nothing is to be done, and nothing fails."""

    whole = LocalMark if ends.way == "get" else RemoteMark
    end = whole.end

    async def dying(mark: Any, done: bool) -> None:
        await end(mark, False)
        if done:
            raise CarefulError(errno.ENOTCONN, "carefuld ended", "test")

    with monkeypatch.context() as patch:
        patch.setattr(whole, "end", dying)
        with pytest.raises(CarefulError):
            ends.run(ARCHIVE)
    moves, compared = ends.moves(), list[int]()
    fault = ends.daemon.fault

    def watch(question: Any) -> int:
        asks = question.op == lib.CAREFUL_IPC_REQUEST
        compared.extend([1] * (asks and question.handler == lib.CAREFUL_BLOCK_DIGEST))
        return fault(question)

    ends.daemon.fault = watch
    report = ends.run(ARCHIVE)
    assert (report.failures, report.files_count, report.links) == ([], 0, 0)
    assert (moves, len(report.brought)) == ([], 6)
    assert len(compared) == 6  # five digests at a time of the large ones; of small ones none
    assert_equal(ends.source, ends.target)
    assert ends.partials() == []


def test_again__another_has_it(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the same command at a time: the second one says so."""
    monkeypatch.setattr(marks, "LOCK_S", 0.1)
    monkeypatch.setattr(journal, "LOCK_S", 0.1)
    told: list[Any] = []
    begun = LocalMark.begin if ends.way == "get" else RemoteMark.begin

    async def twice(mark: Any, what: Any) -> None:
        await begun(mark, what)
        if not told:
            told.append(mark)
            own = (mark._remote,) if ends.way == "put" else ()
            again = type(mark)(*own, mark._folder, mark._tag, False)
            with pytest.raises(CarefulError, match="another transfer of it is under way"):
                await begun(again, what)

    monkeypatch.setattr(LocalMark if ends.way == "get" else RemoteMark, "begin", twice)
    assert ends.run(PLAIN).failures == []
    assert told
