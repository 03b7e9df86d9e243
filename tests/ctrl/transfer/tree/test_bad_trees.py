"""Trees with long names, changes and unreadable parts: each item fails alone."""

from __future__ import annotations

import errno
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from compare import assert_equal
from fake_daemon import FakeDaemon

ARCHIVE = Options(
    block_bytes=4096, preserve=True, links=True, hard_links=True, xattrs=True, fsync="none"
)


class Ends:
    """A tree on one side, and its target."""

    def __init__(self, way: str, route: Route, here: Path, there: Path) -> None:
        self.way, self.route = way, route
        source, target = (there, here) if way == "get" else (here, there)
        self.source, self.target = source / "tree", target / "tree"
        self.source.mkdir()

    def run(self, options: Options = ARCHIVE, what: str = "tree") -> Any:
        if self.way == "get":
            here = str(self.target.parent)
            return transfers.get(self.route, [what], here, True, options, Progress())
        path = str(self.source.parent / what)
        return transfers.put(self.route, [path], "", True, options, Progress())


@pytest.fixture(params=["get", "put"])
def ends(request: pytest.FixtureRequest, route: Route, daemon: FakeDaemon, tmp_path: Path) -> Ends:
    here = tmp_path / "here"
    here.mkdir()
    return Ends(request.param, route, here, daemon.root)


def test_names__difficult_names(ends: Ends) -> None:
    names = ["new\nline", os.fsdecode(b"\xff\xfe"), "n" * 255, " ", "-f", "a:b", "Case", "case"]
    names += ["\x1b[31m", "*", "\\", "'\"", ".careful", "é" * 127]
    for index, name in enumerate(names):
        (ends.source / name).write_bytes(b"x" * index)
    (ends.source / ("d" * 255)).mkdir()
    (ends.source / ("d" * 255) / ("e" * 255)).write_bytes(bytes(100_000))
    assert ends.run().failures == []
    assert_equal(ends.source, ends.target)


def deep(top: Path, levels: int) -> int:
    """Makes directories nested beyond the longest path, with files. Returns the last one, open."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd


def test_put__paths_beyond_path_max(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A file beyond the longest path is named by a part of its path; all others arrive."""
    (tmp_path / "tree").mkdir()
    os.close(deep(tmp_path / "tree", 30))
    report = transfers.put(route, [str(tmp_path / "tree")], "", True, ARCHIVE, Progress())
    assert report.failures
    assert all(os.strerror(errno.ENAMETOOLONG) in text for _, text in report.failures)
    at, count = daemon.root / "tree", 0
    while len(str(at)) < 3800 and at.is_dir():
        count += (at / "f").exists()
        at = at / ("d" * 200)
    assert count >= 15
    subprocess.run(["rm", "-rf", tmp_path / "tree", daemon.root / "tree"], check=True)


def test_get__paths_beyond_path_max(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    """A directory that the peer could not list is reported, and nothing is deleted."""
    (daemon.root / "tree").mkdir()
    (daemon.root / "tree/f").write_bytes(b"x")
    (tmp_path / "to/tree").mkdir(parents=True)
    (tmp_path / "to/tree/kept").write_bytes(b"x")
    daemon.unlisted = 2
    options = replace(ARCHIVE, delete=True, replace=True)
    report = transfers.get(route, ["tree"], str(tmp_path / "to"), True, options, Progress())
    assert len(report.failures) == 1
    assert "2 with paths that are too long" in report.failures[0][0]
    assert sorted(path.name for path in (tmp_path / "to/tree").iterdir()) == ["f", "kept"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT, errno.EACCES])
def test_one_block_cannot_be_moved(ends: Ends, daemon: FakeDaemon, code: int) -> None:
    """A device that fails, a quota, a lost permission: the file fails by name, others continue."""
    for index in range(6):
        (ends.source / str(index)).write_bytes(os.urandom(100_000))
    bad = (ends.source / "3").stat().st_ino

    def fault(question: Any) -> int:
        if question.op not in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            return 0
        handle = daemon.handles[question.region]
        mine = os.fstat(handle.fd).st_ino == bad or handle.path == ends.target / "3"
        return -code if mine and question.region_off == 40_960 else 0

    daemon.fault = fault
    report = ends.run()
    assert [(Path(name).name, os.strerror(code) in text) for name, text in report.failures] == [
        ("3", True)
    ]
    assert len(report.files) == 5
    assert not (ends.target / "3").exists()


def test_directory_becomes_a_file_and_back(ends: Ends, daemon: FakeDaemon) -> None:
    """No symlink is followed, nothing hangs, and the next run succeeds."""
    for name in ("a", "b"):
        (ends.source / name).mkdir()
        (ends.source / name / "f").write_bytes(b"x" * 100_000)
    swapped = False

    def fault(question: Any) -> int:
        nonlocal swapped
        if question.op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE) and not swapped:
            swapped = True
            (ends.source / "b").rename(ends.source / "was b")
            (ends.source / "b").write_bytes(b"now a file")
        return 0

    daemon.fault = fault
    ends.run()
    assert swapped
    (ends.source / "b").unlink()
    (ends.source / "was b").rename(ends.source / "b")
    again = replace(ARCHIVE, replace=True, update=True, delete=True)
    daemon.fault = lambda question: 0
    assert ends.run(again).failures == []
    assert_equal(ends.source, ends.target)


def test_symlink__asked_for_by_name(ends: Ends) -> None:
    (ends.source.parent / "link").symlink_to("no/where")
    report = ends.run(what="link")
    assert (report.failures, report.links) == ([], 1)
    assert (ends.target.parent / "link").readlink() == Path("no/where")
    again = ends.run(what="link")
    assert (again.failures, again.links, len(again.equal)) == ([], 0, 1)
    (ends.target.parent / "link").unlink()
    (ends.target.parent / "link").symlink_to("else/where")
    assert "exists" in ends.run(what="link").failures[0][1]
