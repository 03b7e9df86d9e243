"""Files of carefulds without io_uring, which containers deny by default."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from denied import IO_URING_SETUP, denied
from hosts import MIB, Host, make_file
from lab import MakeLab

SIZES = (0, 1, 4095, 65537, 3 * MIB + 7, 64 * MIB)


@pytest.fixture
def hosts(make_lab: MakeLab, tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Two hosts without io_uring."""
    lab = make_lab(hosts=2)
    pair = Host(lab, "h1", tmp_path), Host(lab, "h2", tmp_path)
    for one in pair:
        up = ["carefulctl", "up", "eth1", "--export", f"{one.export}:rw", "--insecure"]
        done = lab.run(one.name, *denied(IO_URING_SETUP), *up)
        assert "io_uring is denied (Operation not permitted)" in done.stdout
    yield pair
    for one in pair:
        one.down()


def forget(path: Path) -> None:
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fill(folder: Path) -> dict[str, bytes]:
    """Makes files of several sizes, and one with holes. Returns their contents."""
    made = {f"{size}": make_file(folder / f"{size}", size, size) for size in SIZES}
    with (folder / "holes").open("wb") as file:
        for at in (MIB, 9 * MIB):
            file.seek(at)
            file.write(os.urandom(5000))
        file.truncate(12 * MIB)
    made["holes"] = (folder / "holes").read_bytes()
    for name in made:
        forget(folder / name)
    return made


def holds(folder: Path, made: dict[str, bytes]) -> None:
    """Checks that a folder has these files."""
    for name, data in made.items():
        assert (folder / name).read_bytes() == data, name
    assert {path.name for path in folder.iterdir()} == set(made)


def test_files__without_io_uring(hosts: tuple[Host, Host]) -> None:
    h1, h2 = hosts
    assert "threads read and write files" in h1.log
    for one in hosts:
        assert one.status()["io_uring_denied"] == "Operation not permitted"
    assert "threads read and write files" in h1.ctl("status", "eth1").stdout
    (h2.export / "there").mkdir()
    made = fill(h2.export / "there")
    h1.ctl("get", "-r", "--fsync", "file", f"{h2.lab.address('h2')}:there", h1.own)
    holds(h1.own / "there", made)
    (h1.own / "mine").mkdir()
    made = fill(h1.own / "mine")
    h1.ctl("put", "-r", "--fsync", "file", h1.own / "mine", f"{h2.lab.address('h2')}:")
    holds(h2.export / "mine", made)
    h1.ctl("verify", "-r", f"{h2.lab.address('h2')}:mine", h1.own / "mine")
