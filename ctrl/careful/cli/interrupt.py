"""Handles Ctrl-C while a command is being loaded: a line and status 130, at once.

If Ctrl-C raised an exception during an import, the module could print or replace the exception. A
running command handles Ctrl-C itself.
"""

from __future__ import annotations

import os
import signal

from careful.cli.exit_status import Exit


def interrupted(*_: object) -> None:
    """Ends the process with a message."""
    os.write(2, b"carefulctl: interrupted\n")
    os._exit(Exit.SIGNALLED + signal.SIGINT)


def arm() -> None:
    """Makes Ctrl-C end the process at once, unless it is ignored (nohup, `&`)."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupted)


def disarm() -> None:
    """Makes Ctrl-C an exception again."""
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, signal.default_int_handler)
