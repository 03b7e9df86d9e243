"""Ctrl-C while the command is only being loaded: a line and status 130, at once.

As an exception it would pass through imports, which print it, or make another of it. What a
command that is under way does then is its own.
"""

from __future__ import annotations

import os
import signal

from careful.cli.exit_status import Exit


def interrupted(*_: object) -> None:
    """End the process, and say so."""
    os.write(2, b"carefulctl: interrupted\n")
    os._exit(Exit.SIGNALLED + signal.SIGINT)


def arm() -> None:
    """From now on, end at once; not where whoever started us ignores it (nohup, `&`)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def disarm() -> None:
    """From now on, it is an exception, as arm() found it."""
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
