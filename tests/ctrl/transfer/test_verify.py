"""The findings of verify and partials, and what they leave alone."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import transfers
from careful._abi import lib
from careful.cli.files.verify import partials
from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.transfer.file.find_partials import PartialFile, find_local
from careful.transfer.file.journal import is_partial
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.entries import Entry
from careful.transfer.run import verify as verifying
from click.testing import CliRunner
from fake_daemon import DiedError, FakeDaemon

BLOCK = 4096


def verify(route: Route, target: Path, recursive: bool = True) -> dict[str, str]:
    return dict(transfers.verify(route, "t", str(target), recursive, BLOCK).differences)


def test_verify__equal_and_each_difference(
    route: Route, daemon: FakeDaemon, export: Path, tmp_path: Path
) -> None:
    for top in (export / "t", tmp_path / "t"):
        (top / "d").mkdir(parents=True)
        (top / "same").write_bytes(b"s" * 10_000)
        (top / "other").write_bytes(b"o" * 10_000)
        (top / "d/size").write_bytes(b"x")
        (top / "link").symlink_to("a")
        (top / "kind").write_bytes(b"")
    assert verify(route, tmp_path / "t") == {}
    with (tmp_path / "t/other").open("r+b") as file:
        file.seek(9000)
        file.write(b"different")
    (tmp_path / "t/d/size").write_bytes(b"xx")
    (tmp_path / "t/link").unlink()
    (tmp_path / "t/link").symlink_to("b")
    (tmp_path / "t/kind").unlink()
    (tmp_path / "t/kind").mkdir()
    (tmp_path / "t/here").write_bytes(b"")
    (export / "t/there").write_bytes(b"")
    moved: list[int] = []

    def watch(question: Any) -> int:
        if question.op in (lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE):
            moved.append(question.bytes)
        return 0

    daemon.fault = watch
    assert verify(route, tmp_path / "t") == {
        "h2:t/other": "1 of 3 blocks differ, the first at byte 8192",
        "h2:t/d/size": "1 bytes there, 2 here",
        "link": "-> a there, -> b here",
        "kind": "file there, directory here",
        "here": "only here",
        "there": "only there",
    }
    assert 0 < sum(moved) < 5000  # names and digests
    assert not daemon.handles


def test_verify__a_directory_by_mistake(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "d").mkdir()
    with pytest.raises(CarefulError, match="h2:d: is a directory; -r compares it"):
        transfers.verify(route, "d", str(tmp_path), False, BLOCK)


def test_verify__one_file(route: Route, export: Path, tmp_path: Path) -> None:
    (export / "t").write_bytes(b"")
    (tmp_path / "t").write_bytes(b"")
    assert verify(route, tmp_path / "t", False) == {}
    (tmp_path / "t").unlink()
    with pytest.raises(CarefulError, match="No such file"):
        verify(route, tmp_path / "t", False)


def broken_off(
    route: Route, daemon: FakeDaemon, way: str, tmp_path: Path, block: int = BLOCK
) -> None:
    """Leaves a partial file with three of ten blocks."""
    data = os.urandom(10 * block)
    moved = 0

    def fault(question: Any) -> int:
        nonlocal moved
        ops = lib.CAREFUL_IPC_GET, lib.CAREFUL_IPC_STORE
        if question.op in ops and question.bytes == block:
            moved += 1
            if moved == 4:
                raise DiedError
        return 0

    daemon.fault = fault
    options = Options(block_bytes=block, blocks_in_flight=1)
    (daemon.root / "f" if way == "get" else tmp_path / "f").write_bytes(data)

    def move() -> None:
        if way == "get":
            transfers.get(route, ["f"], str(tmp_path / "f"), False, options, Progress())
        else:
            transfers.put(route, [str(tmp_path / "f")], "d/f", False, options, Progress())

    with pytest.raises(CarefulError):
        move()
    daemon.fault = lambda question: 0


def test_partials__here(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    broken_off(route, daemon, "get", tmp_path)
    leftover = tmp_path / ".careful-0123456789abcdef.part"
    leftover.write_bytes(b"x")
    os.utime(leftover, (0, time.time() - 3600))
    (tmp_path / "batch").mkdir()
    young = tmp_path / "batch/.careful-0123456789abcde0.part"
    young.write_bytes(b"x")
    batch = os.open(tmp_path / "batch", os.O_RDONLY)
    fcntl.flock(batch, fcntl.LOCK_SH)
    (tmp_path / "careful.part").write_bytes(b"not one")
    tomorrow = tmp_path / ".careful-0123456789abcde1.part"
    tomorrow.write_bytes(b"x")
    os.utime(tomorrow, (0, time.time() + 86400))
    assert [one.state for one in find_local(str(tomorrow), clean=True)] == ["removed"]
    found = {one.state: one for one in find_local(str(tmp_path), clean=False)}
    assert set(found) == {"resumable", "leftover", "in use"}
    one = found["resumable"]
    assert (one.bytes, one.present_bytes, one.source) == (10 * BLOCK, 3 * BLOCK, "h2:f")
    assert 3500 < found["leftover"].age_s < 3700
    fd = os.open(one.path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    states = [found.state for found in find_local(str(tmp_path), clean=True)]
    assert sorted(states) == ["in use", "in use", "removed"]
    os.close(fd)
    find_local(str(tmp_path), clean=True)
    assert not Path(one.path).exists()
    assert young.exists()
    os.close(batch)
    assert [found.state for found in find_local(str(tmp_path), clean=True)] == ["removed"]
    assert (tmp_path / "careful.part").exists()


@pytest.mark.parametrize("way", ["get", "put"])
def test_blake3__other_blocks_begin_again(
    route: Route, daemon: FakeDaemon, way: str, tmp_path: Path
) -> None:
    """BLAKE3 needs blocks of a power of two, and an earlier run used others."""
    (daemon.root / "d").mkdir()
    broken_off(route, daemon, way, tmp_path, 3 * BLOCK)
    options = Options(block_bytes=BLOCK, blake3=True)
    if way == "get":
        report = transfers.get(route, ["f"], str(tmp_path / "f"), False, options, Progress())
    else:
        report = transfers.put(route, [str(tmp_path / "f")], "d/f", False, options, Progress())
    assert (report.failures, report.resumed_bytes) == ([], 0)
    target = daemon.root / "d/f" if way == "put" else tmp_path / "f"
    source = tmp_path / "f" if way == "put" else daemon.root / "f"
    assert target.read_bytes() == source.read_bytes()


def test_partial__names() -> None:
    assert is_partial("d/.x.careful-0123456789abcdef.part")
    assert not is_partial("d/.x.careful-0123456789abcdef.part\n")


def test_partials__no_directory(tmp_path: Path) -> None:
    with pytest.raises(CarefulError, match="No such file"):
        find_local(str(tmp_path / "none"), clean=False)


def test_partials__one_directory_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is named, like names that cannot be removed, and the exit status is 3."""
    names = [tmp_path / f"{name}/.x.careful-0123456789abcdef.part" for name in "ab"]
    for name in names:
        name.parent.mkdir()
        name.write_bytes(b"x")
    scanned, refused = os.scandir, str(tmp_path / "a")

    def scandir(path: str) -> Any:
        if str(path) == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scanned(path)

    reported = CliRunner().invoke(partials, [str(tmp_path)])
    assert (reported.exit_code, "leftover" in reported.output) == (0, True)
    monkeypatch.setattr(os, "scandir", scandir)
    reported = CliRunner().invoke(partials, [str(tmp_path)])
    assert (reported.exit_code, "Permission denied" in reported.output) == (3, True)
    found = find_local(str(tmp_path), clean=True)
    assert [(one.path, one.state, one.is_failure) for one in found] == [
        (refused, "Permission denied", True),
        (str(names[1]), "removed", False),
    ]


def test_partials__names_that_are_no_files(route: Route, export: Path, tmp_path: Path) -> None:
    """A symlink, a fifo or an empty file does not end the listing, and is not opened."""
    names = [f".x.careful-0123456789abcde{index}.part" for index in range(4)]
    for top in (tmp_path / "t", export / "t"):
        top.mkdir()
        (top / names[0]).symlink_to("nowhere")
        (top / names[1]).symlink_to("/etc/passwd")
        os.mkfifo(top / names[2])
        (top / names[3]).write_bytes(b"")
        (top / (names[0] + "x")).write_bytes(b"")
    assert [one.state for one in find_local(str(tmp_path / "t"), clean=False)] == ["leftover"] * 4
    find_local(str(tmp_path / "t"), clean=True)
    assert [path.name for path in (tmp_path / "t").iterdir()] == [names[0] + "x"]
    assert [one.state for one in transfers.partials(route, "t", clean=False)] == ["leftover"] * 4
    transfers.partials(route, "t", clean=True)
    assert [path.name for path in (export / "t").iterdir()] == [names[0] + "x"]


def test_partials__an_unreadable_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(2):
        (tmp_path / f".x.careful-0123456789abcde{index}.part").write_bytes(b"x")
    opened = os.open

    def refusing(path: Any, flags: int, *mode: Any, **more: Any) -> int:
        if str(path).endswith("0.part"):
            raise PermissionError(errno.EACCES, "refused", path)
        return opened(path, flags, *mode, **more)

    monkeypatch.setattr(os, "open", refusing)
    states = [one.state for one in find_local(str(tmp_path), clean=True)]
    assert states == ["Permission denied", "removed"]


def test_partials__of_a_peer(route: Route, daemon: FakeDaemon, tmp_path: Path) -> None:
    (daemon.root / "d").mkdir()
    broken_off(route, daemon, "put", tmp_path)
    found: list[PartialFile] = transfers.partials(route, "", clean=False)
    assert [(one.state, one.bytes) for one in found] == [("resumable", 10 * BLOCK)]
    assert found[0].name.startswith("h2:d/.careful-")
    assert [one.state for one in transfers.partials(route, "d", clean=True)] == ["removed"]
    assert list((daemon.root / "d").iterdir()) == []
    assert not daemon.handles


def test_verify__unreadable_files(
    route: Route, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that cannot be read is named once; partial files do not count."""
    for top in (export / "t", tmp_path / "t"):
        (top / "d/e").mkdir(parents=True)
        (top / "d/e/f").write_bytes(b"")
    (tmp_path / "t/d/.x.careful-0123456789abcdef.part").write_bytes(b"")
    scan = verifying.scan_local

    def blind(top: str) -> list[Entry]:
        return [
            one._replace(error=errno.EACCES) if one.name == "d/e" else one
            for one in scan(top)
            if one.name != "d/e/f"
        ]

    monkeypatch.setattr(verifying, "scan_local", blind)
    assert verify(route, tmp_path / "t") == {"d/e": "cannot be read here: Permission denied"}


@pytest.mark.parametrize("damaged", [False, True])
def test_verify__a_block_device(route: Route, export: Path, tmp_path: Path, damaged: bool) -> None:
    """Only as many bytes as the file has are compared."""
    if os.geteuid():
        pytest.skip("needs root, for a loop device")
    data = os.urandom(3 * BLOCK)
    (export / "t").write_bytes(data)
    (tmp_path / "image").write_bytes(data + bytes(5 * BLOCK))
    if damaged:
        with (tmp_path / "image").open("r+b") as file:
            file.seek(BLOCK)
            file.write(b"x")
    argv = ["losetup", "--show", "-f", tmp_path / "image"]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        found = verify(route, device, False)
        (export / "t").write_bytes(bytes(9 * BLOCK))
        larger = verify(route, device, False)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
    assert list(found.values()) == ["1 of 3 blocks differ, the first at byte 4096"] * damaged
    assert list(larger.values()) == [f"{9 * BLOCK} bytes there, {8 * BLOCK} here"]
