"""All exit statuses of carefulctl; `carefulctl help exit-status` explains them."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit status of `carefulctl`; a signal's number is added to SIGNALLED."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    PARTLY = 3
    LOST = 4
    WITHHELD = 5
    BROKEN = 70  # EX_SOFTWARE of sysexits.h
    SIGNALLED = 128
