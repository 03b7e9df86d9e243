"""Ends a program that we started and that exits when its input ends."""

from __future__ import annotations

import subprocess
from contextlib import suppress


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], patience_s: float = 5.0) -> int:
    """Closes the program's pipes and waits, then kills it if needed; returns its status."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
