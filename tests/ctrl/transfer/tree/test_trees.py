"""Whole trees: attributes, links, and what stays and is removed."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import transfers
from any_tree import TREES, build
from careful._abi import lib
from careful.address import resolve
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.filters import Filters, rules
from careful.transfer.options import Options, Progress
from careful.transfer.protocol import batch
from careful.transfer.protocol.batch import LocalTree, RemoteTree
from careful.transfer.protocol.block import BlockClient
from careful.transfer.tree.copy import TreeTransfer
from compare import acl_of, assert_equal, describe, set_xattr
from fake_daemon import FakeDaemon
from hypothesis import HealthCheck, given, settings
from transfers import Notes

ARCHIVE = Options(
    block_bytes=4096, preserve=True, links=True, hard_links=True, xattrs=True, fsync="none"
)


class Ends:
    """A tree on one side, and where it goes."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        self.source, self.target = (there, here) if way == "get" else (here, there)
        self.source, self.target = self.source / "tree", self.target / "tree"
        self.source.mkdir()
        self.watch = Notes()

    def run(self, options: Options = ARCHIVE) -> Any:
        if self.way == "get":
            target = str(self.target.parent)
            return transfers.get(self.route, ["tree"], target, True, options, self.watch)
        return transfers.put(self.route, [str(self.source)], "", True, options, self.watch)

    def write(self, name: str, data: bytes = b"x", mtime: int = 1_000_000_007) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(0, mtime))
        return path


def test_put__a_time_that_64_bits_do_not_hold(route: Route, tmp_path: Path) -> None:
    """The nearest possible time is set and reported, not one of another century."""
    source, far = tmp_path / "file", datetime(2300, 1, 2, tzinfo=UTC)
    source.write_bytes(b"x")
    os.utime(source, (0, far.timestamp()))
    if source.stat().st_mtime != far.timestamp():
        pytest.skip("the file system has no such times")
    watch, there = Notes(), tmp_path / "export/file"
    report = transfers.put(route, [str(source)], "", False, ARCHIVE, watch)
    assert report.failures == []
    assert [f"{source}: its time is outside" in one for one in watch.notes] == [True]
    assert datetime.fromtimestamp(there.stat().st_mtime, UTC).year == 2262


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    here = tmp_path / "here"
    here.mkdir()
    return Ends(request.param, route, here, daemon.root)


def test_archive__everything(ends: Ends) -> None:
    ends.write("a/small", b"small").chmod(0o4755)
    ends.write("a/large", os.urandom(200_000)).chmod(0o400)
    ends.write("empty", b"", mtime=-5)
    ends.write("future", mtime=4_000_000_000_123_456_789)
    os.link(ends.source / "a/large", ends.source / "a/again")
    os.link(ends.source / "a/small", ends.source / "b")
    (ends.source / "link").symlink_to("no/where")
    os.utime(ends.source / "link", ns=(0, 77), follow_symlinks=False)
    set_xattr(ends.source / "a/large", "user.one", b"\0\1")
    set_xattr(ends.source / "a/small", "user.two", b"")
    set_xattr(ends.source / "a", "user.three", b"3")
    (ends.source / "a").chmod(0o2750)
    if os.geteuid() == 0:
        os.chown(ends.source / "a/small", 1234, 5678)
        (ends.source / "a/small").chmod(0o4755)
        os.chown(ends.source / "link", 1, 2, follow_symlinks=False)
    os.utime(ends.source / "a", ns=(0, 123_456_789))
    os.utime(ends.source, ns=(0, 987_654_321))
    report = ends.run()
    assert report.failures == []
    assert_equal(ends.source, ends.target)
    assert report.links == 3


def test_plain__usual_modes_and_no_links(ends: Ends) -> None:
    ends.write("d/a").chmod(0o4755)
    (ends.source / "d").chmod(0o555)
    (ends.source / "link").symlink_to("d")
    os.mkfifo(ends.source / "pipe")
    report = ends.run(Options(fsync="none"))
    assert [kind for _, kind in report.skipped] == ["symlink"]
    assert [text for _, text in report.failures] == [
        f"{name}: is a fifo, not a file" for name, _ in report.failures
    ]
    assert len(report.failures) == 1
    assert (ends.target / "d/a").stat().st_mode & 0o7777 == 0o755
    assert (ends.target / "d").stat().st_mode & 0o7777 == 0o555
    assert sorted(p.name for p in ends.target.iterdir()) == ["d"]
    assert (ends.target / "d/a").stat().st_mtime_ns != 1_000_000_007


def test_update__equal_files_stay(ends: Ends) -> None:
    ends.write("same")
    ends.write("large", bytes(100_000))
    ends.write("changed", b"before")
    update = replace(ARCHIVE, update=True, replace=True)
    assert len(ends.run(update).files) == 3
    inode = (ends.target / "same").stat().st_ino
    ends.write("changed", b"after", mtime=1_000_000_008)
    ends.write("new")
    report = ends.run(update)
    assert sorted(Path(one.source).name for one in report.files) == ["changed", "new"]
    assert len(report.equal) == 2
    assert (ends.target / "same").stat().st_ino == inode
    assert_equal(ends.source, ends.target)
    assert ends.run(update).files == []


def test_update__attributes_follow(ends: Ends) -> None:
    ends.write("same").chmod(0o600)
    update = replace(ARCHIVE, update=True, replace=True)
    ends.run(update)
    (ends.source / "same").chmod(0o640)
    assert ends.run(update).files == []
    assert_equal(ends.source, ends.target)


def test_checksum__only_blocks_that_differ(ends: Ends) -> None:
    data = os.urandom(4096 * 25 + 17)
    ends.write("f", data)
    options = replace(ARCHIVE, checksum=True, replace=True)
    assert ends.run(options).moved_bytes == len(data)
    # Same size and time, other contents: only digests tell.
    changed = data[:4096] + b"other" + data[4101:]
    ends.write("f", changed)
    report = ends.run(options)
    assert (report.moved_bytes, report.matched_bytes) == (4096, len(data) - 4096)
    assert_equal(ends.source, ends.target)
    ends.write("f", changed + b"longer", mtime=5)
    report = ends.run(options)
    assert report.moved_bytes == 17 + 6
    assert_equal(ends.source, ends.target)
    ends.write("f", changed[: 4096 * 3], mtime=6)
    assert ends.run(options).moved_bytes == 0
    assert_equal(ends.source, ends.target)
    report = ends.run(options)
    assert (report.files, len(report.equal)) == ([], 1)


def test_dry_run__changes_nothing(ends: Ends) -> None:
    ends.write("d/new")
    dry = replace(ARCHIVE, dry_run=True, replace=True, delete=True, update=True)
    report = ends.run(dry)
    assert len(report.files) == 1
    assert not ends.target.exists()
    ends.run()
    (ends.target / "extra").write_bytes(b"")
    before = describe(ends.target)
    report = ends.run(dry)
    assert (report.files, len(report.equal)) == ([], 1)
    assert [Path(name).name for name in report.deleted] == ["extra"]
    assert describe(ends.target) == before
    (ends.target / "d/new").write_bytes(b"y")
    before = describe(ends.target)
    refused = ends.run(replace(dry, replace=False, update=False))
    assert [text.partition(": ")[2] for _, text in refused.failures] == [
        "exists and differs; -f replaces it"
    ]
    assert describe(ends.target) == before


def test_delete__names_missing_at_the_source(ends: Ends) -> None:
    ends.write("kept/a")
    ends.run()
    (ends.target / "gone/deep").mkdir(parents=True)
    (ends.target / "gone/deep/file").write_bytes(b"")
    (ends.target / "kept/b").write_bytes(b"")
    (ends.target / "kept/b.o").write_bytes(b"")
    (ends.target / "link").symlink_to("/etc")
    options = replace(
        ARCHIVE, delete=True, update=True, replace=True, filters=Filters(((False, "*.o"),))
    )
    report = ends.run(options)
    assert report.failures == []
    assert len(report.deleted) == 5
    left = sorted(os.path.relpath(p, ends.target) for p in ends.target.rglob("*"))
    assert left == ["kept", "kept/a", "kept/b.o"]
    ends.run(replace(options, filters=Filters()))
    assert_equal(ends.source, ends.target)


def test_delete__not_below_excluded_names(ends: Ends) -> None:
    ends.write("kept/a")
    ends.run()
    (ends.target / "kept/cache/deep").mkdir(parents=True)
    (ends.target / "kept/cache/deep/file").write_bytes(b"")
    filters = Filters(((False, "cache/"),))
    report = ends.run(replace(ARCHIVE, delete=True, update=True, filters=filters))
    assert report.failures == report.deleted == []
    assert (ends.target / "kept/cache/deep/file").exists()


@pytest.mark.parametrize("pattern", ["*.o", "deep/"])
def test_delete__excluded_names_keep_their_directory(ends: Ends, pattern: str) -> None:
    """The file that should replace the directory fails by name, and all of the directory stays."""
    ends.write("taken")
    inner = ends.target / "taken/deep/kept.o"
    inner.parent.mkdir(parents=True)
    inner.write_bytes(b"mine")
    (ends.target / "taken/too").write_bytes(b"mine")
    filters = Filters(((False, pattern),))
    options = replace(ARCHIVE, delete=True, replace=True, filters=filters)
    report = ends.run(options)
    assert [Path(name).name for name, _ in report.failures] == ["taken"]
    assert report.deleted == []
    assert inner.read_bytes() == (ends.target / "taken/too").read_bytes() == b"mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_delete__not_if_the_source_is_unreadable(ends: Ends) -> None:
    ends.write("locked/a")
    ends.run()
    (ends.source / "locked").chmod(0)
    report = ends.run(replace(ARCHIVE, delete=True, replace=True))
    assert report.failures
    assert (ends.target / "locked/a").exists()


def test_clash__a_directory_for_a_file_and_back(ends: Ends) -> None:
    """rsync's rule: only files are replaced; a directory is removed with --delete."""
    ends.write("was a file/f")
    ends.write("was a link/f")
    ends.write("was a directory")
    ends.target.mkdir()
    (ends.target / "was a file").write_bytes(b"old")
    (ends.target / "was a link").symlink_to("was a directory/d")
    (ends.target / "was a directory/d").mkdir(parents=True)
    (ends.target / "was a directory/d/kept").write_bytes(b"old")
    options = replace(ARCHIVE, update=True, replace=True)
    rehearsed = ends.run(replace(options, delete=True, dry_run=True)).deleted
    first = ends.run(options)
    assert [name.rpartition("/")[2] for name, _ in first.failures] == ["was a directory"]
    assert (ends.target / "was a directory/d/kept").exists()
    assert not list((ends.target / "was a directory/d").glob("f"))
    second = ends.run(replace(options, delete=True))
    assert second.failures == []
    assert sorted(first.deleted + second.deleted) == sorted(rehearsed)
    assert len(rehearsed) == 5
    assert_equal(ends.source, ends.target)


def test_clash__nothing_comes_for_a_directory(ends: Ends) -> None:
    """A skipped or failed file needs no room, whatever the options."""
    partial = f".f.careful-{1:016x}.part"
    ends.write(partial)
    ends.write("other")
    (ends.source / "link").symlink_to("other")
    os.mkfifo(ends.source / "fifo")
    names = {"link", "fifo", partial}
    for name in names:
        (ends.target / name).mkdir(parents=True)
        (ends.target / name / "kept").write_bytes(b"old")
    plain = Options(fsync="none", update=True, replace=True, delete=True)
    for options in (plain, replace(plain, dry_run=True)):
        assert ends.run(options).deleted == []
        assert {path.parent.name for path in ends.target.glob("*/kept")} == names
    deleted = ends.run(replace(plain, links=True)).deleted
    assert [name.rpartition("tree/")[2] for name in deleted] == ["link/kept", "link"]
    assert (ends.target / "link").readlink() == Path("other")
    assert {path.parent.name for path in ends.target.glob("*/kept")} == names - {"link"}


@pytest.mark.parametrize("same", [True, False])
def test_clash__names_that_differ_in_case(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """The target ignores case, so the second name is the first file."""
    ends.write("d/Case", b"one")
    ends.write("D/case", b"two")
    ends.write("e\u0301", b"three")
    os.link(ends.source / "e\u0301", ends.source / "\u00e9")  # meant to be one
    make_links = TreeTransfer._make_links

    async def then_one(work: TreeTransfer, *given: Any) -> None:
        await make_links(work, *given)
        if same:
            (ends.target / "D/case").unlink()
            os.link(ends.target / "d/Case", ends.target / "D/case")

    monkeypatch.setattr(TreeTransfer, "_make_links", then_one)
    found = [text for _, text in ends.run(replace(ARCHIVE, replace=True)).failures]
    assert len(found) == same
    assert all("has the same name there as" in text for text in found)


def test_filters__patterns_and_names(ends: Ends) -> None:
    for name in ("a.c", "a.o", "keep.o", "cache/x", "src/cache/y", "src/b.c", "src/cache2/z"):
        ends.write(name)
    patterns = ((True, "keep.o"), (False, "*.o"), (False, "/cache/"), (False, "src/**/z"))
    ends.run(replace(ARCHIVE, filters=Filters(patterns)))
    found = {os.path.relpath(p, ends.target) for p in ends.target.rglob("*") if p.is_file()}
    assert found == {"a.c", "keep.o", "src/cache/y", "src/b.c"}
    shutil.rmtree(ends.target)
    only = Filters(only=frozenset(["a.o", "src/cache", "none"]))
    report = ends.run(replace(ARCHIVE, filters=only))
    found = {os.path.relpath(p, ends.target) for p in ends.target.rglob("*") if p.is_file()}
    assert found == {"a.o", "src/cache/y"}
    assert len(report.failures) == 1
    assert "No such file" in report.failures[0][1]


def test_small_files__a_file_cannot_be_made(ends: Ends) -> None:
    for index in range(5):
        ends.write(str(index))
    (ends.target / "2/in the way").mkdir(parents=True)
    report = ends.run(replace(ARCHIVE, replace=True))
    assert len(report.files) == 4
    assert [Path(name).name for name, _ in report.failures] == ["2"]


def test_small_files__a_file_grows_while_it_is_read(ends: Ends, daemon: FakeDaemon) -> None:
    """A file that was small in the listing is read at its present size."""
    path = ends.write("f")
    grown = False

    def fault(question: Any) -> int:
        nonlocal grown
        requests = daemon.asked.count(lib.CAREFUL_IPC_REQUEST)
        makes = question.op == lib.CAREFUL_IPC_REQUEST and (
            question.handler == lib.CAREFUL_BLOCK_MKDIR
        )
        if not grown and (makes or requests > 3):
            path.write_bytes(b"y" * 100_000)
            grown = True
        return 0

    daemon.fault = fault
    report = ends.run()
    assert grown
    assert report.failures == []
    assert (ends.target / "f").read_bytes() == b"y" * 100_000


def test_small_files__handles_are_short(ends: Ends, daemon: FakeDaemon) -> None:
    """Other transfers of this host may hold all handles that the peer grants."""
    ends.write("f")
    refused = 0

    def fault(question: Any) -> int:
        nonlocal refused
        asks = question.op == lib.CAREFUL_IPC_REQUEST
        if asks and question.handler == lib.CAREFUL_BLOCK_BATCH and refused < 3:
            refused += 1
            return -errno.EMFILE
        return 0

    daemon.fault = fault
    assert ends.run().failures == []
    assert refused == 3
    assert_equal(ends.source, ends.target)
    assert not daemon.handles


def test_links__a_name_that_leads_out(ends: Ends, tmp_path: Path) -> None:
    """An existing symlink is not followed."""
    ends.write("d/f")
    outside = tmp_path / "outside"
    outside.mkdir()
    ends.target.mkdir()
    (ends.target / "d").symlink_to(outside)
    report = ends.run()
    assert len(report.failures) == 1
    assert list(outside.iterdir()) == []


def test_put__read_only_export(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.writable = False
    (tmp_path / "t").mkdir()
    (tmp_path / "t/f").write_bytes(b"x")
    (daemon.root / "t").mkdir()
    report = transfers.put(route, [str(tmp_path / "t")], "t", True, Options(), Progress())
    assert [name for name, _ in report.failures] == [str(tmp_path / "t")]
    assert os.strerror(errno.EROFS) not in report.failures[0][1]  # our message says more


@pytest.mark.parametrize("code", [errno.E2BIG, errno.EPERM])
def test_xattrs__that_cannot_be_read(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The error names the file; its attributes at the target stay, and all others are set."""
    ends.write("large", bytes(100_000)).chmod(0o640)
    ends.run()
    (ends.source / "large").chmod(0o604)
    set_xattr(ends.target / "large", "user.old", b"kept")
    whole = RemoteTree if ends.way == "get" else LocalTree
    run = whole.run

    async def refusing(tree: Any, items: bytes, flags: int) -> bytes:
        found = list(batch.parse(await run(tree, items, flags)))
        reads = next(batch.parse(items)).op == lib.CAREFUL_ITEM_READ
        if reads:
            found = [one._replace(status=code * (one.name == b"large")) for one in found]
        return batch.joined(found)

    monkeypatch.setattr(whole, "run", refusing)
    report = ends.run(replace(ARCHIVE, update=True, replace=True))
    assert [Path(name).name for name, _ in report.failures] == ["large"]
    assert "large: " in report.failures[0][1]
    if code == errno.E2BIG:
        assert "has more than 192 KiB of extended attributes" in report.failures[0][1]
    assert (ends.target / "large").stat().st_mode & 0o777 == 0o604
    assert os.listxattr(ends.target / "large") == ["user.old"]


def test_xattrs__more_than_fit_in_an_answer(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """If an answer has no room for all attributes, the rest is requested again."""
    monkeypatch.setattr(batch, "_ANSWER_MAX", 400_000)
    names = [f"large{index}" for index in range(5)]
    for name in names:
        ends.write(name, bytes(100_000))
        set_xattr(ends.source / name, "user.a", name.encode())
    if ends.way == "get":
        limited = FakeDaemon._batch

        def less(daemon: FakeDaemon, args: list[int], fields: dict[str, Any]) -> Any:
            return limited(daemon, args, fields | {"answer_bytes_max": 400_000})

        monkeypatch.setattr(FakeDaemon, "_batch", less)
    assert ends.run().failures == []
    assert_equal(ends.source, ends.target)


@pytest.mark.parametrize("name", ["small", "large", "folder"])
def test_archive__acls(ends: Ends, name: str) -> None:
    """Access ACLs of files, and default ones of directories, which new files take on."""
    ends.write("small")
    ends.write("large", bytes(100_000))
    ends.write("folder/inside")
    try:
        os.setxattr(ends.source / name, "system.posix_acl_access", acl_of((1234, 4), (77, 2)))
        if name == "folder":
            os.setxattr(ends.source / name, "system.posix_acl_default", acl_of((1234, 6)))
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error.strerror}")
    assert ends.run().failures == []
    assert_equal(ends.source, ends.target)
    assert "system.posix_acl_access" in os.listxattr(ends.target / name)
    # One that is removed at the source is removed at the target, and none is inherited.
    os.removexattr(ends.source / name, "system.posix_acl_access")
    assert ends.run(replace(ARCHIVE, update=True, replace=True)).failures == []
    assert_equal(ends.source, ends.target)
    assert os.listxattr(ends.target / "folder/inside") == []


def test_rehearsal__compares(ends: Ends) -> None:
    """-n -c shows what would move: only different blocks."""
    data = os.urandom(4096 * 5)
    for name in ("same", "other", "new"):
        ends.write(name, data)
    ends.run()
    (ends.target / "new").unlink()
    (ends.target / "other").write_bytes(data[:4096] + bytes([data[4096] ^ 1]) + data[4097:])
    before = describe(ends.target)
    report = ends.run(replace(ARCHIVE, checksum=True, replace=True, dry_run=True))
    assert [Path(name).name for name, _ in report.equal] == ["same"]
    found = {Path(one.source).name: one.matched_bytes for one in report.files}
    assert found == {"new": 0, "other": 4096 * 4}
    assert report.moved_bytes == 4096 * 6
    assert describe(ends.target) == before


@pytest.mark.parametrize("equal", [True, False])
def test_rehearsal__compares_one_file(ends: Ends, equal: bool) -> None:
    ends.write("f", b"x" * 4096)
    other = ends.target.parent / "f"
    other.write_bytes((b"x" if equal else b"y") * 4096)
    options = replace(ARCHIVE, checksum=True, replace=True, dry_run=True)
    if ends.way == "get":
        report = transfers.get(ends.route, ["tree/f"], str(other), False, options, Progress())
    else:
        report = transfers.put(
            ends.route, [str(ends.source / "f")], "f", False, options, Progress()
        )
    assert (len(report.equal), len(report.files)) == (equal, not equal)


def test_get__rehearsal_of_all_exports(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory above several exports belongs to no file system."""
    (export / "one").mkdir()
    stat_of = BlockClient.stat

    async def stat(remote: BlockClient, path: str) -> Any:
        found = await stat_of(remote, path)
        return found._replace(inode=0) if path == "." else found

    monkeypatch.setattr(BlockClient, "stat", stat)
    options = replace(ARCHIVE, dry_run=True)
    transfers.get(route, [""], str(tmp_path / "new"), True, options, Progress())
    assert not (tmp_path / "new").exists()
    transfers.get(route, [""], str(tmp_path / "new"), True, ARCHIVE, Progress())
    assert (tmp_path / "new/one").is_dir()


@pytest.mark.parametrize("says_so", [True, False])
def test_get__all_exports_but_one(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says_so: bool
) -> None:
    """An unmounted disk, listed or not, does not end the others."""
    for name in ("a", "b", "c"):
        (export / name).mkdir()
        (export / name / "file").write_bytes(name.encode())
    stat_of, listing_of, tree_of = BlockClient.stat, BlockClient.listing, BlockClient.list

    async def stat(remote: BlockClient, path: str) -> Any:
        found = await stat_of(remote, path)
        return found._replace(inode=0) if path == "." else found

    async def listing(remote: BlockClient, path: str, recursive: bool = False) -> Any:
        code = errno.ENOLINK if says_so else 0
        entries = await listing_of(remote, path, recursive)
        return [one._replace(error=code) if one.name == "b" else one for one in entries]

    async def tree(remote: BlockClient, path: str, recursive: bool = False) -> Any:
        if path == "b":
            raise CarefulError(errno.ENOLINK, "", remote.name(path))
        return await tree_of(remote, path, recursive)

    monkeypatch.setattr(BlockClient, "stat", stat)
    monkeypatch.setattr(BlockClient, "listing", listing)
    monkeypatch.setattr(BlockClient, "list", tree)
    report = transfers.get(route, [""], str(tmp_path / "new"), True, ARCHIVE, Progress())
    [(name, text)] = report.failures
    assert name == "h2:b"
    assert "the exported directory is not there" in text
    assert (tmp_path / "new/a/file").read_bytes() == b"a"
    assert (tmp_path / "new/c/file").read_bytes() == b"c"


def test_force__a_directory_replaces_a_file(ends: Ends) -> None:
    ends.write("d/f")
    ends.target.mkdir()
    (ends.target / "d").write_bytes(b"old")
    assert ends.run(replace(ARCHIVE, replace=True)).failures == []
    assert_equal(ends.source, ends.target)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_"),
    [
        ("[[:alpha:]]", "aZ", "1_"),
        ("[![:digit:]x]", "a-", "1x"),
        ("[^a-c]", "dz", "ac"),
        ("[]a]", "]a", "b"),
        ("[a\\]b]", "a]b", "\\"),
        ("[a-]", "a-", "b"),
        ("[[:punct:][:space:]]", "!\t]", "a"),
        ("[\\--0]", "-.0", "1"),
        ("a[b", "", "ab"),
        ("[]", "", "]"),
    ],
)
def test_filters__sets(pattern: str, fits: str, not_: str) -> None:
    found = Filters(((False, pattern),))
    assert [char for char in fits if found.fits(char, False)] == []
    assert [char for char in not_ if not found.fits(char, False)] == []


@pytest.mark.parametrize("pattern", ["[z-a]", "x[[:nothing:]]", "/a/[9-0]/"])
def test_filters__no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is not a range|there is no"):
        rules([(False, pattern)])


# --- any tree


@contextmanager
def ends_of(way: str) -> Iterator[Ends]:
    """Returns ends in their own folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "export").mkdir()
        (folder / "here").mkdir()
        daemon = FakeDaemon(folder, folder / "export")
        try:
            route = Route(daemon.path, "test", resolve("10.0.0.2"), "h2")
            yield Ends(way, route, folder / "here", daemon.root)
            assert not daemon.handles
        finally:
            daemon.stop()


@pytest.mark.parametrize("way", ["get", "put"])
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(tree=TREES)
def test_archive__any_tree(way: str, tree: dict[bytes, Any]) -> None:
    with ends_of(way) as ends:
        build(ends.source, tree, [])
        report = ends.run()
        assert report.failures == []
        assert_equal(ends.source, ends.target)
        again = ends.run(replace(ARCHIVE, update=True, replace=True, delete=True))
        assert (again.files, again.deleted, again.failures) == ([], [], [])
        assert_equal(ends.source, ends.target)
