"""Targets whose file systems cannot hold all of a source's attributes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful.daemon.route import Route
from careful.transfer.options import Options
from compare import acl_of, set_xattr
from disks import MakeDisk
from fake_daemon import FakeDaemon
from transfers import Notes

SYNC = Options(
    block_bytes=4096,
    preserve=True,
    links=True,
    hard_links=True,
    xattrs=True,
    replace=True,
    update=True,
    checksum=True,
    fsync="none",
)
YEAR_2300_S = 10_413_792_000


class Ends:
    """A directory on one side, and a mount on the other."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        self.source, self.target = (there, here) if way == "get" else (here, there)
        self.source, self.target = self.source / "from", self.target / "to"
        for one in (self.source, self.target):
            one.mkdir(parents=True)
        self.watch = Notes()

    def run(self, options: Options = SYNC) -> Any:
        if self.way == "get":
            return transfers.get(
                self.route, ["from/"], f"{self.target}/t", True, options, self.watch
            )
        return transfers.put(self.route, [f"{self.source}/"], "to/t", True, options, self.watch)


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    return Ends(request.param, route, tmp_path / "here", daemon.root)


@pytest.fixture
def ramfs(ends: Ends) -> Iterator[None]:
    """A target that knows neither extended attributes nor ACLs."""
    done = subprocess.run(
        ["mount", "-t", "ramfs", "none", ends.target], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no ramfs: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", ends.target], check=True)


@pytest.mark.parametrize("nbytes", [1, 100_000])
def test_xattrs__that_the_target_cannot_hold(ends: Ends, ramfs: None, nbytes: int) -> None:
    """Neither is dropped silently: the status is not 0."""
    for name in ("noted", "listed", "plain"):
        (ends.source / name).write_bytes(b"x" * nbytes)
    set_xattr(ends.source / "noted", "user.a", b"1")
    os.setxattr(ends.source / "listed", "system.posix_acl_access", acl_of((1234, 4)))
    for came in (3, 0):
        report = ends.run()
        assert report.files_count == came
        assert sorted(Path(name).name for name, _ in report.failures) == ["listed", "noted"]
        assert all("cannot store all its extended" in text for _, text in report.failures)
    for path in ends.source.iterdir():
        there = ends.target / "t" / path.name
        assert there.read_bytes() == path.read_bytes()
        assert there.stat().st_mtime_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize("nbytes", [1, 100_000])
def test_times__coarse_at_the_target(ends: Ends, make_disk: MakeDisk, nbytes: int) -> None:
    """A small ext4 keeps whole seconds, and times up to 2038."""
    make_disk(ends.target, inode_bytes=128)
    for name, ns in (("now", 1_700_000_000_123_456_789), ("late", 4_000_000_000_000_000_000)):
        (ends.source / name).write_bytes(b"x" * nbytes)
        os.utime(ends.source / name, ns=(0, ns))
    assert [Path(name).name for name, _ in ends.run().failures] == ["late"]
    (ends.source / "late").unlink()
    before = (ends.target / "t/now").stat()
    again = ends.run(replace(SYNC, checksum=False))
    assert (again.files_count, len(again.equal)) == (0, 1)
    assert (ends.target / "t/now").stat().st_ctime_ns == before.st_ctime_ns
    os.utime(ends.source / "now", ns=(0, 1_700_000_001_000_000_000))  # another second
    assert ends.run(replace(SYNC, checksum=False)).files_count == 1


@pytest.mark.parametrize("nbytes", [1, 100_000])
def test_times__that_64_bits_do_not_hold(ends: Ends, nbytes: int) -> None:
    """Such a time must not wrap to 1715, which would make the source older than the target."""
    (ends.source / "far").write_bytes(b"n" * nbytes)
    os.utime(ends.source / "far", (YEAR_2300_S, YEAR_2300_S))
    if (ends.source / "far").stat().st_mtime != YEAR_2300_S:
        pytest.skip("the file system has no such times")
    (ends.target / "t").mkdir()
    (ends.target / "t/far").write_bytes(b"old")
    report = ends.run(replace(SYNC, keep_newer=True))
    assert (report.failures, report.files_count) == ([], 1)
    there = ends.target / "t/far"
    assert (there.read_bytes(), there.stat().st_mtime_ns) == (b"n" * nbytes, (1 << 63) - 1)
    assert ["far: its time is outside" in one for one in ends.watch.notes] == [True]
    ends.watch.notes.clear()
    assert (ends.run().files_count, ends.watch.notes) == (0, [])


def test_times__that_64_bits_do_not_hold__new_tree(ends: Ends) -> None:
    """The same for small files, which move in batches."""
    (ends.source / "far").write_bytes(b"x")
    os.utime(ends.source / "far", (YEAR_2300_S, YEAR_2300_S))
    if (ends.source / "far").stat().st_mtime != YEAR_2300_S:
        pytest.skip("the file system has no such times")
    assert ends.run(Options(times=True, fsync="none")).failures == []
    assert (ends.target / "t/far").stat().st_mtime_ns == (1 << 63) - 1
    assert ["far: its time is outside" in one for one in ends.watch.notes] == [True]
