"""The disk after a power failure just after a transfer was reported complete.

The disks commit their journals on demand, not by time (disks.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import transfers
from careful.daemon.route import Route
from careful.transfer.options import Options, Progress
from disks import Disk, MakeDisk
from fake_daemon import FakeDaemon

ARCHIVE = Options(preserve=True, links=True, hard_links=True, xattrs=True)


@contextmanager
def after_power_cut(disk: Disk, tmp_path: Path) -> Iterator[Path]:
    """Returns the disk's contents if power failed now."""
    image, top = tmp_path / "cut.img", tmp_path / "cut"
    shutil.copyfile(disk.image, image)
    top.mkdir()
    subprocess.run(["mount", "-t", "ext4", "-o", "loop", image, top], check=True)
    try:
        yield top
    finally:
        subprocess.run(["umount", top], check=True)


@pytest.mark.parametrize("way", ["get", "put"])
@pytest.mark.parametrize("fsync", ["file", "end"])
def test_tree__a_file_system_is_mounted_below_its_target(
    route: Route, daemon: FakeDaemon, tmp_path: Path, make_disk: MakeDisk, way: str, fsync: str
) -> None:
    """Both file systems are synced, not only the names in the target's own."""
    local, remote = tmp_path / "tree", daemon.root / "tree"
    source, target = (remote, local) if way == "get" else (local, remote)
    (source / "disk/new").mkdir(parents=True)
    for name in ("a", "disk/b", "disk/new/c"):
        (source / name).write_bytes(b"x" * 5000)
    target.mkdir()
    disk = make_disk(target / "disk")
    options = Options(fsync=fsync, block_bytes=4096)
    if way == "get":
        report = transfers.get(route, ["tree/"], str(local), True, options, Progress())
    else:
        report = transfers.put(route, [f"{local}/"], "tree", True, options, Progress())
    assert (report.failures, len(report.files)) == ([], 3)
    with after_power_cut(disk, tmp_path) as top:
        for name in ("b", "new/c"):
            assert (top / name).read_bytes() == b"x" * 5000


@pytest.mark.parametrize("way", ["get", "put"])
def test_named__an_equal_target_exists(
    route: Route, daemon: FakeDaemon, tmp_path: Path, make_disk: MakeDisk, way: str
) -> None:
    """The file is synced, although another program wrote it."""
    local, remote = tmp_path / "a", daemon.root / "a"
    source, target = (remote, tmp_path) if way == "get" else (local, daemon.root)
    disk = make_disk(target / "disk")
    for path in (source, disk.top / "a"):
        path.write_bytes(b"x" * 5000)
    if way == "get":
        report = transfers.get(route, ["a"], str(disk.top), False, Options(), Progress())
    else:
        report = transfers.put(route, [str(local)], "disk", False, Options(), Progress())
    assert (report.failures, len(report.equal)) == ([], 1)
    with after_power_cut(disk, tmp_path) as top:
        assert (top / "a").read_bytes() == b"x" * 5000


def test_put__attributes_of_a_file_that_was_named(
    route: Route, daemon: FakeDaemon, tmp_path: Path, make_disk: MakeDisk
) -> None:
    """Attributes are set before the sync; a symlink is synced, too."""
    disk = make_disk(daemon.root / "disk")
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"x" * 5000)
    os.setxattr(file, "user.a", b"b")
    os.chown(file, 1, 2)
    link.symlink_to("file")
    report = transfers.put(route, [str(file), str(link)], "disk", False, ARCHIVE, Progress())
    assert report.failures == []
    with after_power_cut(disk, tmp_path) as top:
        found = (top / "file").stat()
        assert (found.st_uid, found.st_gid) == (1, 2)
        assert os.getxattr(top / "file", "user.a") == b"b"
        assert (top / "link").readlink() == Path("file")


def test_get__symlink_that_was_named(
    route: Route, daemon: FakeDaemon, tmp_path: Path, make_disk: MakeDisk
) -> None:
    disk = make_disk(tmp_path / "disk")
    (daemon.root / "link").symlink_to("file")
    report = transfers.get(route, ["link"], str(tmp_path / "disk"), False, ARCHIVE, Progress())
    assert (report.failures, report.links) == ([], 1)
    with after_power_cut(disk, tmp_path) as top:
        assert (top / "link").readlink() == Path("file")
