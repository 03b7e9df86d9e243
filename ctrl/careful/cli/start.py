"""The entry point of `carefulctl`. Handles Ctrl-C before the slow imports."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from careful.cli import interrupt

interrupt.arm()


def _hold_standard_descriptors() -> None:
    """Opens descriptors 0 to 2 if they are closed, so that no file of ours gets their numbers.

    Then output to standard error is lost, and output to standard output fails.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, flags)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _never_fail_to_encode() -> None:
    """Writes `?` for characters that the locale lacks; without a locale, UTF-8."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="replace")


def main() -> None:
    """Runs `carefulctl` and exits with its status."""
    from careful.cli.main import finish, run

    _hold_standard_descriptors()
    _never_fail_to_encode()
    try:
        status = run()
        interrupt.arm()
    except KeyboardInterrupt:  # outside run()'s handler
        interrupt.interrupted()
    finish(status)
