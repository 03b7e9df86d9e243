"""Tests how `powercut` reads a disk and its log, and the clocks of its two machines."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tool_module import load_tool

#: Keeps a file of the disk open until it is told to end.
KEEP = "import sys; f = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read(); f.write('x')"


@pytest.fixture
def powercut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    tool = load_tool("tests/machines/powercut", monkeypatch)
    monkeypatch.setattr(tool, "DISK", tmp_path / "disk")
    tool.DISK.mkdir()
    return tool


@pytest.fixture
def transfers(powercut: ModuleType) -> ModuleType:
    return importlib.import_module("emulated.transfers")


@pytest.fixture
def image(powercut: ModuleType, tmp_path: Path) -> Path:
    """An empty ext4."""
    path = tmp_path / "image"
    try:
        for argv in (
            ["mkfs.ext4", "-q", path, "8m"],
            ["mount", "-o", "loop", path, powercut.DISK],
            ["umount", powercut.DISK],
        ):
            subprocess.run(argv, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system in a file cannot be mounted: {error}")
    return path


def test_mounted__until_no_mount_namespace_has_it(
    powercut: ModuleType, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a successful umount the file system once wrote into the next cut's disk."""
    argv = ["unshare", "--mount", sys.executable, "-c", KEEP, powercut.DISK / "file"]
    with powercut.mounted(image, "ext4"):
        keeper = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert keeper.stdout
        assert keeper.stdout.readline() == b"\n"

        def sleep(_: float) -> None:
            if keeper.poll() is None:
                assert powercut.in_use(image)
                assert not powercut.DISK.is_mount()
                keeper.communicate()

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
        monkeypatch.setattr(powercut, "time", clock)
    assert keeper.returncode == 0, "mounted() did not wait for the keeper"
    assert not powercut.in_use(image)
    with powercut.mounted(image, "ext4"):
        assert (powercut.DISK / "file").read_text() == "x"


def test_clocks__each_host_is_ahead_as_said_in_each_quarter(transfers: ModuleType) -> None:
    """The steps add up to the report's offsets at the instants of a transfer."""
    for host, ahead_s in transfers.AHEAD_S.items():
        now_s = 0
        for number in range(24):
            now_s += transfers.step_s(host, number, 24)
            assert now_s == ahead_s[number // 6], (host, number)


def test_faults__a_file_with_another_time(
    transfers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -u a file has its source's time, whatever the clocks show; otherwise its own."""
    monkeypatch.setattr(transfers, "DISK", tmp_path)
    all_of = transfers.transfers(6)
    assert {one.update for one in all_of} == {False, True}
    for one in all_of:
        for path, data in one.contents():
            file = tmp_path / one.target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            os.utime(file, ns=(one.mtime_ns, one.mtime_ns))
    assert transfers.faults(all_of, 6) == []
    for one in all_of:
        for path, _ in one.contents():
            os.utime(tmp_path / one.target / path)
    timed = (one.target / path for one in all_of if one.update for path, _ in one.contents())
    assert transfers.faults(all_of, 6) == [f"{file}: has another time" for file in sorted(timed)]
