"""The same command twice, or after an interruption: what arrives, stays and is refused."""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.find_partials import find_local
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Progress
from compare import assert_equal
from fake_daemon import MOVES, FakeDaemon

BLOCK = 16384
PLAIN = Options(block_bytes=BLOCK, files_in_flight=1, blocks_in_flight=1, fsync="none")
ARCHIVE = replace(PLAIN, preserve=True, links=True, hard_links=True, xattrs=True)
LARGE = 5 * BLOCK + 1


class Ends:
    """A tree, its target, and a peer that dies on command."""

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

    def write(self, name: str, data: bytes, mtime: int = 1_000_000_007) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(0, mtime))
        return path

    def run(self, options: Options, what: str = "tree/", into: str = "new") -> Any:
        """Moves a name from next to the source to next to the target."""
        if self.way == "get":
            target = str(self.target.parent / into) + "/" * into.endswith("/")
            return transfers.get(self.route, [what], target, True, options, Progress())
        source = f"{self.source.parent}/{what}"
        return transfers.put(self.route, [source], into, True, options, Progress())

    def moves(self, deadly: int = 1 << 30) -> list[int]:
        """Returns a list that collects moved blocks; the peer dies at the deadly one."""
        return self.daemon.moves((BLOCK, LARGE % BLOCK), deadly)

    def break_off(self, options: Options, after: int = 9, **what: str) -> None:
        self.moves(after)
        with pytest.raises(CarefulError, match="run the same command to resume"):
            self.run(options, **what)

    def partials(self) -> list[Path]:
        return [path for path in self.target.parent.rglob("*") if is_partial(path.name)]

    def names(self, *inside: str) -> list[str]:
        top = self.target.parent.joinpath(*inside)
        return sorted(path.name for path in top.iterdir())


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    (tmp_path / "here").mkdir()
    return Ends(request.param, route, daemon, tmp_path / "here")


# --- slashes: a name's place never depends on existing names


@pytest.mark.parametrize("what", ["tree", "tree/"])
@pytest.mark.parametrize("into", ["new", "new/"])
def test_place__same_twice(ends: Ends, what: str, into: str) -> None:
    """A directory is copied under its name; with a trailing slash, its contents are copied."""
    wanted = ["a", "b", "c", "large"]
    for _ in range(2):
        assert ends.run(PLAIN, what, into).failures == []
        assert ends.names("new") == (wanted if what == "tree/" else ["tree"])
    if what == "tree":
        assert ends.names("new", "tree") == wanted


def test_place__update_twice(ends: Ends) -> None:
    """`get -ru h2:ds/dir01 w1/n` twice must not make dir01 in dir01."""
    options = replace(PLAIN, update=True, keep_newer=True, replace=True)
    for _ in range(2):
        assert ends.run(options, "tree/c").failures == []
    assert ends.names("new") == ["c"]
    assert ends.names("new", "c") == ["again", "d"]


def test_place__delete_spares_neighbours(ends: Ends) -> None:
    """Without a slash, only names below that directory may be removed."""
    ends.run(PLAIN, "tree/a")
    (ends.target / "beside").write_bytes(b"mine")
    (ends.target / "a/gone").write_bytes(b"")
    options = replace(PLAIN, update=True, replace=True, delete=True)
    report = ends.run(options, "tree/a")
    assert [Path(name).name for name in report.deleted] == ["gone"]
    assert ends.names("new") == ["a", "beside"]
    report = ends.run(options, "tree/a/")
    assert sorted(Path(name).name for name in report.deleted) == ["a", "beside", "large", "small"]


def test_place__a_file(ends: Ends) -> None:
    """The target is a directory if it exists as one or ends with a slash; else the file's name."""
    assert ends.run(PLAIN, "tree/a/small", "file").failures == []
    assert (ends.target.parent / "file").read_bytes() == b"a/small"
    assert ends.run(PLAIN, "tree/a/small", "folder/").failures == []
    assert ends.run(PLAIN, "tree/b/small", "folder/b").failures == []
    assert ends.names("folder") == ["b", "small"]


def test_place__mkpath(ends: Ends) -> None:
    made = replace(PLAIN, make_path=True)
    assert ends.run(made, "tree/a/small", "x/y/z").failures == []
    assert ends.run(made, "tree/b/small", "x/u/v/").failures == []
    assert ends.run(made, "tree/a", "p/q").failures == []
    top = ends.target.parent
    assert (top / "x/y/z").read_bytes() == b"a/small"
    assert (top / "x/u/v/small").read_bytes() == b"b/small"
    assert ends.names("p", "q") == ["a"]


@pytest.mark.parametrize("options", [PLAIN, replace(PLAIN, dry_run=True)], ids=["", "rehearsed"])
@pytest.mark.parametrize("source", ["tree/a/small", "tree/a", "tree/a/"])
@pytest.mark.parametrize("target", ["no/where", "no/where/"])
def test_place__a_directory_on_the_way_is_missing(
    ends: Ends, options: Options, source: str, target: str
) -> None:
    """Every such command gives advice, not only `get h2:a h2:b no/`."""
    with pytest.raises(CarefulError, match="no: no such directory; --mkpath makes it") as caught:
        ends.run(options, source, target)
    assert caught.value.errno == errno.ENOENT
    (ends.target.parent / "file").write_bytes(b"")
    with pytest.raises(CarefulError, match="file: is not a directory"):
        ends.run(options, source, "file/x")
    assert sorted(one.name for one in ends.target.parent.iterdir()) == ["file"]


# --- existing files


@pytest.mark.parametrize("options", [PLAIN, ARCHIVE], ids=["plain", "archive"])
def test_twice__nothing_moves(ends: Ends, options: Options) -> None:
    """Large and small files are compared and equal, and nothing fails."""
    ends.run(options)
    moves, before = ends.moves(), ends.daemon.fault
    batches = list[int]()

    def watch(question: Any) -> int:
        batches.extend([question.bytes] * (question.op == lib.CAREFUL_IPC_STORE))
        return before(question)

    ends.daemon.fault = watch
    report = ends.run(options)
    assert (report.failures, report.files_count, report.links) == ([], 0, 0)
    assert (moves, len(report.equal)) == ([], 7 - options.links)
    if options.links:
        assert_equal(ends.source, ends.target)


@pytest.mark.parametrize("size", [LARGE, LARGE + 1])
def test_twice__a_differing_file_is_refused(ends: Ends, size: int) -> None:
    """Digests decide, not size and times; the other files arrive."""
    ends.run(PLAIN)
    ends.write("large", os.urandom(size))
    ends.write("a/small", b"another")
    ends.write("fresh", b"fresh")
    before = (ends.target / "large").read_bytes()
    report = ends.run(PLAIN)
    assert {Path(name).name for name, _ in report.failures} == {"large", "small"}
    assert all("exists and differs; -f replaces it" in why for _, why in report.failures)
    assert (ends.target / "large").read_bytes() == before
    assert (ends.target / "fresh").read_bytes() == b"fresh"
    assert ends.run(replace(PLAIN, replace=True)).failures == []
    assert (ends.target / "large").read_bytes() == (ends.source / "large").read_bytes()


def test_twice__one_file(ends: Ends) -> None:
    for _ in range(2):
        report = ends.run(PLAIN, "tree/large", "file")
        assert report.failures == []
    assert (report.files_count, len(report.equal)) == (0, 1)
    ends.write("large", os.urandom(LARGE))
    assert "exists and differs" in ends.run(PLAIN, "tree/large", "file").failures[0][1]


def test_twice__links(ends: Ends) -> None:
    """A symlink elsewhere, and a file where a hard link was, are refused by name."""
    ends.run(ARCHIVE)
    (ends.target / "b/link").unlink()
    (ends.target / "b/link").symlink_to("else")
    (ends.target / "c").chmod(0o755)
    (ends.target / "c/again").unlink()
    (ends.target / "c/again").write_bytes(b"mine")
    report = ends.run(ARCHIVE)
    assert {Path(name).name for name, _ in report.failures} == {"link", "again"}
    assert (ends.target / "b/link").readlink() == Path("else")


def test_update__newer_stays(ends: Ends) -> None:
    """-u means the same as for rsync and cp: newer files at the target stay."""
    ends.run(ARCHIVE)
    for name, mtime in (("large", 2_000_000_000), ("a/small", 500)):
        path = ends.target / name
        path.write_bytes(b"mine")
        os.utime(path, ns=(0, mtime))
    options = replace(ARCHIVE, update=True, keep_newer=True, replace=True)
    report = ends.run(options)
    assert [Path(name).name for name, _ in report.newer] == ["large"]
    assert (ends.target / "large").read_bytes() == b"mine"
    assert (ends.target / "a/small").read_bytes() == b"a/small"
    one = ends.run(options, "tree/large", "new")
    assert len(one.newer) == 1
    mirrored = ends.run(replace(options, keep_newer=False))
    assert (mirrored.failures, mirrored.newer, mirrored.files_count) == ([], [], 1)
    assert_equal(ends.source, ends.target)


# --- interrupted


@pytest.mark.parametrize("options", [PLAIN, ARCHIVE], ids=["plain", "archive"])
def test_repeated__received_files_stay(ends: Ends, options: Options) -> None:
    """Three large files of six blocks, or four without hard links; the peer dies at the ninth
    block.
    """
    ends.break_off(options)
    moves = ends.moves()
    report = ends.run(options)
    assert report.failures == []
    # The first file, and two blocks of the second, have arrived.
    assert len(moves) == (18 if options.links else 24) - 8
    assert Counter(nbytes for _, nbytes in report.equal)[LARGE] == 1
    assert report.resumed_bytes == 2 * BLOCK
    assert report.files_count + len(report.equal) == 6 + (not options.links)
    assert ends.partials() == []
    if options.links:
        assert_equal(ends.source, ends.target)
    else:
        assert (ends.target / "b/large").read_bytes() == (ends.source / "b/large").read_bytes()


@pytest.mark.parametrize("more", [{"update": True}, {"checksum": True}], ids=["update", "checksum"])
def test_repeated__with_update_or_checksum(ends: Ends, more: dict[str, bool]) -> None:
    """A complete file has its time, so neither option sends it again."""
    options = replace(ARCHIVE, replace=True, **more)
    ends.break_off(options)
    moves = ends.moves()
    report = ends.run(options)
    assert (report.failures, len(moves)) == ([], 18 - 8)
    assert LARGE in [nbytes for _, nbytes in report.equal]
    assert_equal(ends.source, ends.target)


def test_repeated__cut_off_by_a_power_failure(ends: Ends) -> None:
    """Size and times look complete, but the contents are not."""
    ends.break_off(PLAIN)
    whole = [p for p in ends.target.rglob("*") if p.is_file() and p.name in ("large", "again")]
    whole[0].write_bytes(bytes(LARGE))
    report = ends.run(PLAIN)
    assert [Path(name).name for name, _ in report.failures] == [whole[0].name]
    assert ends.run(replace(PLAIN, replace=True)).failures == []
    name = whole[0].relative_to(ends.target)
    assert whole[0].read_bytes() == (ends.source / name).read_bytes()
    assert ends.partials() == []


def test_repeated__restart(ends: Ends) -> None:
    """A partial file is dropped; a complete one stays."""
    ends.break_off(PLAIN)
    moves = ends.moves()
    report = ends.run(replace(PLAIN, restart=True))
    assert (report.failures, report.resumed_bytes, len(moves)) == ([], 0, 24 - 6)
    assert ends.partials() == []


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_repeated__cause_mended(ends: Ends, code: int) -> None:
    """One kind of file fails; the same command brings it after the cause is removed."""

    def fault(question: Any) -> int:
        moves = question.op in MOVES and question.bytes in (BLOCK, LARGE % BLOCK)
        return -code if moves else 0

    ends.daemon.fault = fault
    assert len(ends.run(PLAIN).failures) == 4
    ends.daemon.fault = lambda question: 0
    report = ends.run(PLAIN)
    assert (report.failures, len(report.equal)) == ([], 3)
    assert ends.partials() == []


def test_repeated__rehearsal(ends: Ends) -> None:
    ends.break_off(PLAIN)
    report = ends.run(replace(PLAIN, dry_run=True))
    assert report.failures == []
    assert LARGE in [nbytes for _, nbytes in report.equal]
    assert len(ends.partials()) == 1


def test_repeated__leftovers_go(ends: Ends) -> None:
    """The end of the continuing run removes the dead run's temporary files."""
    ends.break_off(PLAIN)
    left = ends.target / "a/.careful-00000000000000ff.part"
    left.write_bytes(b"half")
    states = {Path(one.path).name: one.state for one in find_local(str(ends.target), clean=False)}
    assert sorted(states.values()) == ["leftover", "resumable"]
    assert states[left.name] == "leftover"
    assert ends.run(PLAIN).failures == []
    assert ends.partials() == []


def test_repeated__another_block_size(ends: Ends) -> None:
    """Files of one block need no partial file, so old ones are removed."""
    ends.break_off(PLAIN)
    assert len(ends.partials()) == 1
    report = ends.run(replace(PLAIN, block_bytes=1 << 20))
    assert report.failures == []
    assert ends.partials() == []


def test_repeated__appears_meanwhile(ends: Ends) -> None:
    """A name appears during the transfer: an equal file is done, another is refused."""
    there = ends.target / "a/large"
    for data, refused in ((b"mine", ["large"]), ((ends.source / "a/large").read_bytes(), [])):
        ends.run(PLAIN)
        there.unlink()
        before, again = ends.daemon.fault, data

        def appears(question: Any, before: Any = before, again: bytes = again) -> int:
            if question.op in MOVES and question.bytes == BLOCK and not there.exists():
                there.write_bytes(again)
            return int(before(question))

        ends.daemon.fault = appears
        report = ends.run(PLAIN)
        ends.daemon.fault = before
        assert [Path(name).name for name, _ in report.failures] == refused
        assert there.read_bytes() == data
        there.unlink()


def test_repeated_put__disk_full(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A file that failed because the disk was full continues later."""
    (tmp_path / "here").mkdir()
    ends, full = Ends("put", route, daemon, tmp_path / "here"), True

    def fault(question: Any) -> int:
        asks = question.op == lib.CAREFUL_IPC_REQUEST
        commits = asks and question.handler == lib.CAREFUL_BLOCK_COMMIT
        return -errno.ENOSPC if commits and full else 0

    ends.daemon.fault = fault
    assert len(ends.run(PLAIN).failures) == 4
    full = False
    report = ends.run(PLAIN)
    assert report.failures == []
    assert len(report.equal) == 3
    assert ends.partials() == []


# --- partial files do not belong to a tree


def test_tree__has_no_partial_files(ends: Ends) -> None:
    ends.write("a/.x.careful-0123456789abcdef.part", b"x")
    ends.write(".careful-0123456789abcdef.part", b"x" * 100_000)
    report = ends.run(PLAIN)
    assert report.failures == []
    assert [kind for _, kind in report.skipped].count("partial file") == 2
    assert list(ends.target.rglob(".*part")) == []


def test_delete__partial_files_stay(ends: Ends) -> None:
    """Later transfers continue with them; they are removed only with a whole directory."""
    ends.run(ARCHIVE)
    (ends.source.parent / "other").write_bytes(os.urandom(LARGE))
    ends.moves(3)
    with pytest.raises(CarefulError, match="kept; run the same command to resume"):
        ends.run(PLAIN, "other", "new/a/other")
    ends.moves()
    kept = ends.partials()
    assert len(kept) == 1
    (ends.target / "gone").mkdir()
    (ends.target / "gone/.x.careful-0123456789abcdef.part").write_bytes(b"x")
    (ends.target / "a/gone").write_bytes(b"x")
    report = ends.run(replace(ARCHIVE, delete=True, update=True, replace=True))
    assert report.failures == []
    assert len(report.deleted) == 3
    assert ends.partials() == kept
