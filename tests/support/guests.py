"""Emulated machines for tests (tests/machines/emulate), or the reason why there are none."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

MACHINES = Path(__file__).parents[2] / "tests/machines/emulate"
#: Timeout of a command: an emulated CPU is slow, and slower next to others.
LIMIT_S = 600
#: The message of `tests/machines/emulate up` if packages are not available.
WITHOUT = ("has no", "apt-get", "run tools/setup machines")

MARKS = [
    pytest.mark.slow,
    pytest.mark.timeout(3 * LIMIT_S),
    pytest.mark.skipif(
        "CAREFUL_MACHINES" not in os.environ, reason="a step of its own: tools/test machines"
    ),
]


class Machines:
    """A group that runs; `up_with` are its options."""

    def __init__(self, name: str, *up_with: str) -> None:
        self._name = name
        done = self._tool("up", *up_with)
        if any(text in done.stderr for text in WITHOUT):
            pytest.skip(done.stderr.strip())
        assert done.returncode == 0, done.stderr

    def _tool(self, word: str, *argv: str) -> subprocess.CompletedProcess[str]:
        argv = (str(MACHINES), word, "--name", self._name, *argv)
        return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S)

    def tried(self, host: str, *argv: str) -> subprocess.CompletedProcess[str]:
        return self._tool("exec", host, "--", *argv)

    def run(self, host: str, *argv: str) -> str:
        done = self.tried(host, *argv)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def up(self, host: str, *options: str) -> dict[str, Any]:
        """Brings careful up on eth1. Returns its settings."""
        self.said_up(host, *options)
        return self.status(host)

    def said_up(self, host: str, *options: str) -> str:
        """Brings careful up on eth1 without a time limit. Returns the output of `up`."""
        until = time.monotonic() + LIMIT_S
        argv = ("carefulctl", "up", "eth1", "--export", "/tmp:rw", "--insecure", *options)
        while (done := self.tried(host, *argv)).returncode:
            assert "was not ready" in done.stderr, done.stderr
            assert time.monotonic() < until, done.stderr
        return done.stdout

    def status(self, host: str) -> dict[str, Any]:
        found = json.loads(self.tried(host, "carefulctl", "status", "eth1", "--json").stdout)
        (one,) = found["instances"]
        return dict(one)

    def down(self) -> None:
        self._tool("down")
