"""What tools of this folder share: a lab, what its links report, and programs built for them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "lab"
BUILD = ROOT / "build" / "bench"
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
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=400)
    except OSError as error:
        raise BenchError(f"{argv[0]}: {error.strerror}") from None
    if done.returncode:
        why = (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]
        raise BenchError(f"{argv[0]}: {why}")
    return done.stdout


def built(*programs: str) -> Path:
    """Where programs of this folder are, built from the checkout as it is now."""
    run("cmake", "-S", ROOT / "datapath", "-B", BUILD, "-G", "Ninja")
    run("cmake", "--build", BUILD, "--target", *programs)
    return BUILD


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
