"""One host's part of `fleet put`: the file appears complete, at its place."""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from pathlib import Path

import pytest
from careful.errors import CarefulError
from careful.fleet import relay
from careful.fleet.blocks import digests
from careful.fleet.relay import Part, part_name
from careful.transfer.file import partial_file

DATA = os.urandom(100_000)


def put(folder: Path, *, replace: bool = False, data: bytes = DATA) -> None:
    source = folder.parent / "source"
    source.write_bytes(DATA)
    fd = os.open(source, os.O_RDONLY)
    wanted = digests(fd, len(DATA))
    os.close(fd)
    with Part(folder, "a") as part:
        part.begin(len(DATA))
        os.pwrite(part.fd, data, 0)
        part.finish(wanted, len(DATA), 0o4640, replace)
        assert os.pread(part.fd, 10, 0) == DATA[:10]  # blocks still go on to the next host


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "export").mkdir()
    return tmp_path / "export"


def test_finish__whole_and_nothing_else(folder: Path) -> None:
    assert Part(folder, "a").whole_digests(len(DATA)) is None
    put(folder)
    assert (folder / "a").read_bytes() == DATA
    assert (folder / "a").stat().st_mode & 0o7777 == 0o640
    assert [one.name for one in folder.iterdir()] == ["a"]
    assert len(Part(folder, "a").whole_digests(len(DATA)) or []) == 2
    assert Part(folder, "a").whole_digests(len(DATA) + 1) == []


def test_finish__damaged_waits(folder: Path) -> None:
    """Correct blocks are not sent again."""
    with pytest.raises(CarefulError, match="damaged"):
        put(folder, data=b"?" * 10 + DATA[10:])
    assert [one.name for one in folder.iterdir()] == [part_name("a")]
    (folder.parent / "source").write_bytes(DATA)
    with Part(folder, "a") as part, (folder.parent / "source").open("rb") as source:
        wanted = digests(source.fileno(), len(DATA))
        found = part.begin(len(DATA))
    assert [a == b for a, b in zip(found, wanted, strict=True)] == [False, True]
    put(folder)
    assert [one.name for one in folder.iterdir()] == ["a"]


def test_finish__a_name_that_came_meanwhile_stays(folder: Path) -> None:
    (folder / "a").write_text("mine")
    with pytest.raises(FileExistsError):
        put(folder)
    assert (folder / "a").read_text() == "mine"
    put(folder, replace=True)
    assert (folder / "a").read_bytes() == DATA


def test_begin__one_at_a_time_and_never_by_a_link(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Part(folder, "a")
    assert first.begin(10) == []
    monkeypatch.setattr(partial_file, "LOCK_S", 0.0)
    with pytest.raises(CarefulError, match="another transfer"):
        Part(folder, "a").begin(10)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / part_name("b")).symlink_to(secret)
    with pytest.raises(OSError, match=r"fleet-part"):
        Part(folder, "b").begin(0)
    assert secret.read_text() == "secret"
    (folder / "c").symlink_to(secret)
    with pytest.raises(OSError, match="c"):
        Part(folder, "c").whole_digests(6)
    os.mkfifo(folder / "d")
    with pytest.raises(CarefulError, match="special file"):
        Part(folder, "d")


def test_begin__complete_files_are_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program gives the part its final name between our open and our lock."""
    lock, part, locks = fcntl.flock, folder / part_name("a"), 0

    def late(fd: int, how: int) -> None:
        nonlocal locks
        locks += 1
        if locks == 1:
            part.write_bytes(DATA)
            part.rename(folder / "a")
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with Part(folder, "a") as one:
        assert one.begin(10) == []
        assert os.fstat(one.fd).st_ino == part.stat().st_ino
    assert (locks, part.stat().st_size) == (2, 10)
    assert (folder / "a").read_bytes() == DATA


def test_begin__a_part_that_is_also_the_file_is_dropped(folder: Path) -> None:
    """A relay may have ended after the file got its name and before the part lost its own."""
    (folder / "a").write_bytes(DATA)
    (folder / part_name("a")).hardlink_to(folder / "a")
    with Part(folder, "a") as one:
        assert one.begin(10) == []
        os.pwrite(one.fd, b"x" * 10, 0)
    assert (folder / "a").read_bytes() == DATA
    assert (folder / part_name("a")).stat().st_size == 10


@pytest.mark.parametrize("name", ["", "..", "a/b", "../a", "a\0b"])
def test_part__a_name_leads_nowhere_else(folder: Path, name: str) -> None:
    with pytest.raises(CarefulError, match="not a file name"):
        Part(folder, name)


def test_in_thread__reports_that_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """A digest of 40 GB takes longer than `--timeout`, so progress is reported."""
    lines: list[dict[str, object]] = []
    enough = threading.Event()

    def say(**words: object) -> None:
        lines.append(words)
        if len(lines) == 3:
            enough.set()

    monkeypatch.setattr(relay, "_answer", say)
    monkeypatch.setattr(relay, "_BUSY_S", 0.01)
    assert asyncio.run(relay._in_thread(enough.wait, 60))
    assert lines[:3] == [{"busy": True}] * 3
    with pytest.raises(CarefulError, match="not a file name"):
        asyncio.run(relay._in_thread(Part, Path("/"), ".."))
