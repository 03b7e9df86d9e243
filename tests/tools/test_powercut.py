"""A disk on which power failed is made when the file system before it is gone, and no sooner."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from tool_module import load_tool

#: Has a file of the disk open until it is told to end.
KEEP = "import sys; f = open(sys.argv[1], 'w'); print(flush=True); sys.stdin.read(); f.write('x')"


@pytest.fixture
def powercut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    tool = load_tool("powercut", monkeypatch)
    monkeypatch.setattr(tool, "DISK", tmp_path / "disk")
    tool.DISK.mkdir()
    return tool


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
    """Once umount had succeeded, and the file system wrote its last into the next cut's disk."""
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
    assert keeper.returncode == 0, "who had it was waited for"
    assert not powercut.in_use(image)
    with powercut.mounted(image, "ext4"):
        assert (powercut.DISK / "file").read_text() == "x"
