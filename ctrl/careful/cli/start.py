"""Where `carefulctl` begins. Imports take most of its start: Ctrl-C is heard before them."""

from __future__ import annotations

import os
import sys

from careful.cli import interrupt

interrupt.arm()


def _hold_standard_descriptors() -> None:
    """Those that we began without: no file of ours may get their numbers.

    What is said on standard error is for nobody then; what is said on standard output fails,
    as with any other command.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def main() -> None:
    """Run `carefulctl` and exit as its help says."""
    from careful.cli.main import finish, run

    _hold_standard_descriptors()
    try:
        status = run()
        interrupt.arm()
    except KeyboardInterrupt:  # after what run() catches
        interrupt.interrupted()
    finish(status)
