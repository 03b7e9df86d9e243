"""The numbers of node_server.py's handlers."""

from __future__ import annotations

import enum


class Handlers(enum.IntEnum):
    REGIONS = 1
    ECHO = 2
    FAIL = 3
    REFUSE = 4
    LATE = 5
    RELEASE = 6
    STORED = 7
    REPORT = 8
    CALL_BACK = 9
    CALLED = 10  # the client's
    TOO_LARGE = 11
    QUIT = 12
    NONE = 13  # nobody's
