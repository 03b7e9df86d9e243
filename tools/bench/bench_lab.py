"""The lab of a run of `tools/bench/measure`: programs in it, and what its links report."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "lab"
LAB = f"bench{os.getpid()}"
#: Of 40 runs, how many shall be within the bound, and how many intervals shall hold the truth.
SHARE = 36 / 40
PIPELINES = ROOT / "ctrl" / "careful" / "model" / "pipelines"


class BenchError(Exception):
    """What cannot be measured, in one line."""


def commit() -> str:
    """What is checked out; `-dirty` where files differ from it."""
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run(*argv: str | Path) -> str:
    """Run a program to its end; what it printed."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=400)
    if done.returncode:
        raise BenchError(f"{argv[0]}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout


def links(*options: str) -> list[dict[str, Any]]:
    """What the links were asked for and did."""
    found: list[dict[str, Any]] = json.loads(run(TOOL, "links", "--name", LAB, "--json", *options))[
        "links"
    ]
    return found


def ctl(host: str, *words: str) -> dict[str, Any]:
    """What a carefulctl command on a host prints as JSON."""
    argv = [str(TOOL), "exec", "--name", LAB, host, "--", "carefulctl", *words, "--json"]
    found: dict[str, Any] = json.loads(run(*argv))
    return found


def careful_up() -> None:
    """Careful on both hosts."""
    for host in ("h1", "h2"):
        run(TOOL, "exec", "--name", LAB, host, "--", "carefulctl", "up", "eth1")
