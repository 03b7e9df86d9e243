"""Where `carefulctl` begins. Imports take most of its start: Ctrl-C is heard before them."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

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


def _say_what_can_be_said() -> None:
    """Writes `?` for characters that the locale lacks; without a locale, UTF-8."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="replace")


def main() -> None:
    """Run `carefulctl` and exit as its help says."""
    from careful.cli.main import finish, run

    _hold_standard_descriptors()
    _say_what_can_be_said()
    try:
        status = run()
        interrupt.arm()
    except KeyboardInterrupt:  # after what run() catches
        interrupt.interrupted()
    finish(status)
