"""Transfers and their disks: when data is durable, and bad blocks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess

import pytest
from disks import MakeDisk
from hosts import MIB, Host, finish, make_file, wait_for

FILES = 15


@pytest.mark.parametrize("way", ["get", "put"])
def test_fsync__flushes_of_the_disk(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk, way: str
) -> None:
    """Files are synced one by one, together, or not at all: counts the disk's commands."""
    a, b = shared_pair
    disk = make_disk(b.export / "disk")
    source = b.export / "source" if way == "get" else a.own / "source"
    source.mkdir()
    for index in range(FILES):
        make_file(source / str(index), 100_000)
        make_file(source / f"small{index}", 1000)
    flushes, one = {}, {}
    for policy in ("none", "end", "file"):
        words = ("--fsync", policy, "h2:source/", disk.top / policy)
        if way == "put":
            words = ("--fsync", policy, f"{source}/", f"h2:disk/{policy}")
        before = disk.flushes()
        # One at a time, since a disk's journal joins concurrent syncs.
        a.ctl(way, "-r", "--jobs", "1", *words)
        flushes[policy] = disk.flushes() - before
        words = tuple(f"{word}0" if str(word).endswith("/") else word for word in words)
        before = disk.flushes()
        a.ctl(way, *words[:3], f"{words[3]}-one")
        one[policy] = disk.flushes() - before
    print(flushes, one)
    assert flushes["none"] == one["none"] == 0
    assert 1 <= one["end"] <= one["file"]
    # With `end` there are a few for the tree, and none per file.
    assert 1 <= flushes["end"] < FILES <= flushes["file"]


@pytest.mark.parametrize("way", ["get", "put"])
def test_read_error__of_one_block(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk, way: str
) -> None:
    """The file fails by name and is not visible; the others continue."""
    a, b = shared_pair
    disk = make_disk((b.export if way == "get" else a.own) / "disk")
    whole = {str(index): make_file(disk.top / str(index), 300_000, index) for index in range(5)}
    whole |= {f"s{index}": make_file(disk.top / f"s{index}", 3000, index) for index in range(5)}
    shutil.rmtree(disk.top / "lost+found")
    bad = disk.break_last_block().name
    words = ("h2:disk/", a.own / "to") if way == "get" else (f"{disk.top}/", "h2:to")
    done = a.ctl(way, "-r", "--json", *words, check=False)
    assert done.returncode == 3, done.stderr
    failures = json.loads(done.stdout)["failures"]
    assert [one["name"].rpartition("/")[2] for one in failures] == [bad]
    assert os.strerror(errno.EIO) in failures[0]["error"]
    target = (a.own if way == "get" else b.export) / "to"
    came = {one.name: one.read_bytes() for one in target.iterdir() if one.name[0] != "."}
    assert came == {name: data for name, data in whole.items() if name != bad}
    if way == "put":  # the whole device fails; its readable half moves
        disk.unmount()
        spoilt = a.ctl("put", disk.device, "h2:image", check=False)
        assert spoilt.returncode == 1
        assert f"{disk.device}: {os.strerror(errno.EIO)}" in spoilt.stderr
        assert not (b.export / "image").exists()
        half = disk.image.stat().st_size // 2
        a.ctl("put", "--bytes", str(half), disk.device, "h2:image")
        assert (b.export / "image").read_bytes() == disk.image.read_bytes()[:half]


@pytest.mark.parametrize("way", ["get", "put"])
def test_room__taken_before_the_first_byte(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk, way: str
) -> None:
    """Space is allocated first if that is cheap, so a file that does not fit fails at once, without
    moving data.
    """
    a, b = shared_pair
    disk = make_disk((a.own if way == "get" else b.export) / "disk")
    source = (b.export if way == "get" else a.own) / "file"
    make_file(source, 8 * MIB)
    words = ("h2:file", disk.top) if way == "get" else (source, "h2:disk")
    job = a.start(way, "--rate-limit", "1MiB", "--block-bytes", "64KiB", *words)
    wait_for(lambda: list(disk.top.glob(".*.part")) or job.poll() is not None, "its beginning")
    [part] = disk.top.glob(".*.part")
    wait_for(lambda: part.stat().st_blocks * 512 >= 8 * MIB or job.poll() is not None, "its room")
    assert job.poll() is None
    job.kill()
    finish(job)
    os.truncate(source, 64 * MIB)
    with source.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, 64 * MIB)  # no holes
    before = b.status()["counters"]["tx_bytes" if way == "get" else "rx_bytes"]
    done = a.ctl(way, "--restart", *words, check=False)
    assert done.returncode == 1
    assert os.strerror(errno.ENOSPC) in done.stderr
    assert b.status()["counters"]["tx_bytes" if way == "get" else "rx_bytes"] - before < MIB


def test_put__leaves_root_its_reserve(shared_pair: tuple[Host, Host], make_disk: MakeDisk) -> None:
    """Space reserved for root is not used for other users' files."""
    a, b = shared_pair
    disk = make_disk(b.export / "reserved", 64 * MIB)
    subprocess.run(["tune2fs", "-m", "50", disk.device], check=True, capture_output=True)
    make_file(a.own / "large", 40 * MIB)
    make_file(a.own / "fits", 4 * MIB)
    found = os.statvfs(disk.top)
    assert found.f_bavail * found.f_frsize < 40 * MIB < found.f_bfree * found.f_frsize
    output = a.ctl("put", a.own / "large", "h2:reserved/", check=False)
    assert output.returncode == 1
    assert os.strerror(errno.ENOSPC).lower() in output.stderr.lower()
    a.ctl("put", a.own / "fits", "h2:reserved/")
    assert sorted(one.name for one in disk.top.iterdir() if one.is_file()) == ["fits"]
