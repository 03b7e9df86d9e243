"""Difficult trees between real carefulds: each failure names its item."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from compare import assert_equal
from disks import MakeDisk
from hosts import Host, finish, make_file, wait_for
from lab import nobody

both = pytest.mark.parametrize("way", ["get", "put"])


def ends(pair: tuple[Host, Host], way: str, name: str) -> tuple[Path, Path, tuple[Any, Any]]:
    """Makes a source directory. Returns it, its target, and the command's words."""
    a, b = pair
    source, target = (b.export, a.own) if way == "get" else (a.own, b.export)
    source, target = source / f"{name}-{way}", target / f"{name}-{way}"
    source.mkdir()
    return source, target, (f"h2:{source.name}", a.own) if way == "get" else (source, "h2:")


@both
def test_names__hard_ones(shared_pair: tuple[Host, Host], way: str) -> None:
    a, _ = shared_pair
    source, target, words = ends(shared_pair, way, "names")
    names = ["new\nline", os.fsdecode(b"\xff\xfe"), "n" * 255, " ", "-f", "a:b", "\x1b[31m", "\\"]
    for index, name in enumerate([*names, "Case", "case", "e\u0301", "\u00e9"]):
        (source / name).write_bytes(b"x" * index * 10_000)  # small ones and large
        os.utime(source / name, ns=(0, (4_000_000_000 + index) * 10**9))  # in the future
    deep = source / ("d" * 255) / ("e" * 255)
    deep.mkdir(parents=True)
    make_file(deep / ("f" * 255), 100_000)
    a.ctl(way, "-a", *words)
    assert_equal(source, target)
    again = json.loads(a.ctl(way, "-a", "-u", "--json", *words).stdout)
    assert (again["files_count"], len(again["equal"]), again["failures"]) == (0, 13, [])
    if way == "get":
        assert "13 files" in a.ctl("verify", "-r", words[0], target).stdout


@both
def test_paths__beyond_path_max(shared_pair: tuple[Host, Host], way: str) -> None:
    """Files whose path is too long are counted or named; all others arrive."""
    a, _ = shared_pair
    source, target, words = ends(shared_pair, way, "deep")
    fd = os.open(source, os.O_RDONLY)
    for _ in range(22):
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    done = a.ctl(way, "-r", "--json", *words, check=False)
    assert done.returncode == 3, done.stderr
    failures = json.loads(done.stdout)["failures"]
    assert failures
    assert all(os.strerror(errno.ENAMETOOLONG) in one["error"] for one in failures)
    at, count = target, 0
    while len(str(at)) < 3700 and at.is_dir():
        count += (at / "f").exists()
        at = at / ("d" * 200)
    assert count >= 15
    subprocess.run(["rm", "-rf", source, target], check=True)


@contextmanager
def flickering(path: Path) -> Iterator[None]:
    """Turns a directory into a file and back as fast as possible."""
    aside, stop = path.with_name("aside"), threading.Event()

    def flicker() -> None:
        while not stop.is_set():
            path.rename(aside)
            path.write_bytes(b"now a file")
            path.unlink()
            aside.rename(path)

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@both
def test_directory__becomes_a_file_and_back(shared_pair: tuple[Host, Host], way: str) -> None:
    """Each failure is named; nothing hangs, and a second run succeeds."""
    a, _ = shared_pair
    source, target, words = ends(shared_pair, way, "flicker")
    for folder in ("a", "b", "c"):
        (source / folder).mkdir()
        for index in range(8):
            make_file(source / folder / str(index), 2000 if index % 2 else 80_000, index)
    with flickering(source / "b"):
        for options in ((), ("-u", "--delete")):
            done = a.ctl(way, "-a", *options, *words, check=False)
            assert done.returncode in (0, 1, 3), done.stderr
            assert "Traceback" not in done.stderr
    a.ctl(way, "-a", "-c", "--delete", *words)
    assert_equal(source, target)


def test_sync__of_one_file_to_a_name_that_cannot_be_written(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk
) -> None:
    """A single file ended with status 1, while a file in a tree ended with 3."""
    a, _ = shared_pair
    source, target, _ = ends(shared_pair, "get", "one")
    make_file(source / "f", 1000)
    make_disk(target)
    make_file(target / "f", 900, 2)
    if subprocess.run(["chattr", "+i", target / "f"], check=False).returncode:
        pytest.skip("no immutable files")
    try:
        for name in ("one/f", "one/"):
            done = a.ctl("sync", f"h2:{name}", target, check=False)
            assert done.returncode == 3, done.stderr
    finally:
        subprocess.run(["chattr", "-i", target / "f"], check=True)


@both
def test_permission__lost_in_the_middle(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk, way: str
) -> None:
    """The target loses its write permission: missing files are named, and come with a later run."""
    a, _ = shared_pair
    source, target, words = ends(shared_pair, way, "lost")
    for index in range(30):
        make_file(source / str(index), 100_000, index)
    make_disk(target)
    if subprocess.run(["chattr", "+i", target], check=False).returncode:
        pytest.skip("no immutable directories")
    subprocess.run(["chattr", "-i", target], check=True)
    options = ("-r", "--rate-limit", "500KiB", "--jobs", "1", "--json")
    job = a.start(way, *options, *words)
    wait_for(lambda: len(list(target.glob("*[0-9]"))) >= 2 or job.poll() is not None, "files")
    assert job.poll() is None
    subprocess.run(["chattr", "+i", target], check=True)
    try:
        status, out, errors = finish(job)
    finally:
        subprocess.run(["chattr", "-i", target], check=True)
    assert status == 3, errors
    found = json.loads(out)
    # The failures also name the directory, whose time could not be set.
    files = [one for one in found["failures"] if Path(one["name"]).name.isdigit()]
    assert len(files) + found["files_count"] == 30
    assert all(os.strerror(errno.EPERM) in one["error"] for one in found["failures"])
    a.ctl(way, "-r", "-c", *words)
    for path in source.iterdir():
        assert (target / path.name).read_bytes() == path.read_bytes()


@both
def test_disk__full_in_a_tree(
    shared_pair: tuple[Host, Host], make_disk: MakeDisk, way: str
) -> None:
    """Files without room fail by name; the others are complete."""
    a, _ = shared_pair
    source, target, words = ends(shared_pair, way, "full")
    for index in range(4):
        make_file(source / f"large{index}", 2 << 20, index)
        make_file(source / f"small{index}", 5000, index)
    disk = make_disk(target, 24 << 20)
    room = os.statvfs(disk.top)
    make_file(disk.top / "in the way", room.f_bavail * room.f_frsize - (5 << 20))
    done = a.ctl(way, "-r", "--json", *words, check=False)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)
    assert {os.strerror(errno.ENOSPC) in one["error"] for one in found["failures"]} == {True}
    failed = {Path(one["name"]).name for one in found["failures"]}
    assert failed < {path.name for path in source.iterdir()}
    for path in source.iterdir():
        assert (target / path.name).exists() == (path.name not in failed)
        if path.name not in failed:
            assert (target / path.name).read_bytes() == path.read_bytes()


def test_user__without_privilege(shared_pair: tuple[Host, Host]) -> None:
    """get and put need carefuld, which belongs to root: one line says so, and no file is made."""
    a, b = shared_pair
    make_file(b.export / "file", 1000)
    for words in (("get", "h2:file", "/dev/shm"), ("put", "/etc/hostname", "h2:planted")):
        done = a.lab.run("h1", *nobody(), "carefulctl", *words, check=False)
        assert done.returncode == 1
        assert "only root may connect" in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (b.export / "planted").exists()
