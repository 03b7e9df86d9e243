"""The end of a program that we started, and that ends when its input does. Calls nobody."""

from __future__ import annotations

import subprocess
from contextlib import suppress


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], patience_s: float = 5.0) -> int:
    """Close what leads to it and from it, and wait; one that does not end then is killed.

    Returns:
        Its status.
    """
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        return process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
