"""Finds the programs that commands run, and ends one that exits when its input ends."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from careful.errors import CarefulError

#: Debian's packages keep programs here that people do not call.
_LIBEXEC = Path("/usr/libexec/careful")


def program(name: str) -> str:
    """Returns the path of a program: next to the interpreter, in /usr/libexec/careful or in PATH.

    Raises CarefulError if it is nowhere.
    """
    places = [str(Path(sys.executable).parent), str(_LIBEXEC), *os.get_exec_path()]
    if found := shutil.which(name, path=os.pathsep.join(places)):
        return found
    raise CarefulError(errno.ENOENT, "it is not installed; reinstall careful", name)


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
