"""A text that is shown again whenever it changes: in place on a terminal, else one by one."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from careful.report.tables import folded

#: How often to look, seconds.
PERIOD_S = 0.5


def _is_read() -> bool:
    """False: standard output is a pipe, and who read it has gone."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # no file at all
        return True
    poller = select.poll()
    poller.register(number, 0)
    return not any(events & select.POLLERR for _, events in poller.poll(0))


def watch(look: Callable[[], str], say: Callable[[str], None], in_place: bool) -> NoReturn:
    """Show what `look` says until an exception ends it.

    Args:
        look: the text as it is now.
        say: prints a text where it is not shown in place.
        in_place: whether a terminal shows the newest alone.

    Raises:
        BrokenPipeError: nobody reads it any more, whether there is anything new or not.
    """
    if not (in_place and sys.stdout.isatty()):
        before = ""
        while True:
            if (text := look()) != before:
                say(text)
                before = text
            time.sleep(PERIOD_S)
            if not _is_read():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    from rich.live import Live
    from rich.text import Text

    with Live(Text.from_ansi(folded(look())), auto_refresh=False) as shown:
        while True:
            time.sleep(PERIOD_S)
            shown.update(Text.from_ansi(folded(look())), refresh=True)
