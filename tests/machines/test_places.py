"""Emulated machines of a checkout in a folder that the machine's own file systems hide."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from guests import LIMIT_S, MARKS, WITHOUT

pytestmark = MARKS

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["tmp", "mount"])
def clone(request: pytest.FixtureRequest) -> Iterator[Path]:
    """Copies the tools below /tmp, in a file system of its own for "mount"."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="careful, a space ") as place:
        if request.param == "mount":
            subprocess.run(["mount", "-t", "tmpfs", "careful-test", place], check=True)
        try:
            one = Path(place, "clone")
            shutil.copytree(ROOT / "tools", one / "tools")
            (one / "build").mkdir()
            (ROOT / "build/machines").mkdir(parents=True, exist_ok=True)
            (one / "build/machines").symlink_to(ROOT / "build/machines")
            yield one
        finally:
            if request.param == "mount":
                subprocess.run(["umount", place], check=True)


def test_machine__sees_its_checkout(clone: Path) -> None:
    def tool(word: str, *argv: str) -> subprocess.CompletedProcess[str]:
        name = ("--name", f"places{os.getpid()}")
        argv = (str(clone / "tests/machines/emulate"), word, *name, *argv)
        return subprocess.run(argv, capture_output=True, text=True, cwd=clone, timeout=LIMIT_S)

    try:
        done = tool("up", "--hosts", "1")
        if any(text in done.stderr for text in WITHOUT):
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr
        command = "touch tools/new && tests/machines/emulate status"
        done = tool("exec", "h1", "--", "sh", "-c", command)
        assert (done.stdout, done.stderr) == ("no machines are up\n", "")
        assert not (clone / "tools/new").exists()
    finally:
        tool("down")
