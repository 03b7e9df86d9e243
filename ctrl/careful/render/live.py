"""A text that is shown again whenever it changes: in place on a terminal, else one by one."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from careful.errors import Ended
from careful.render.tables import folded

#: How often to look, seconds.
PERIOD_S = 0.5
_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: The key that ends it.
LAST = "q"


@contextmanager
def signals_wait() -> Iterator[None]:
    """Holds back signals that end us while the terminal is changed: none may leave half of that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_read() -> bool:
    """False: standard output is a pipe, and who read it has gone."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # no file at all
        return True
    poller = select.poll()
    poller.register(number, 0)
    return not any(events & select.POLLERR for _, events in poller.poll(0))


def has_keys() -> bool:
    """Reports whether who looks at a terminal can press keys: it is ours, and no other job's."""
    try:
        number = sys.stdin.fileno()
        return sys.stdout.isatty() and sys.stdin.isatty() and os.tcgetpgrp(number) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no standard input at all
        return False


def _no_key(seconds: float) -> str:
    time.sleep(seconds)
    return ""


@contextmanager
def _keyboard() -> Iterator[Callable[[float], str]]:
    if not has_keys():
        yield _no_key
        return
    number = sys.stdin.fileno()

    def pressed(seconds: float) -> str:
        if not select.select([number], [], [], seconds)[0]:
            return ""
        return os.read(number, 1).decode(errors="replace") or LAST

    def end(signal_number: int, _: object) -> None:
        raise Ended(signal_number)

    # As Ctrl-C does, they leave the terminal as it was.
    ends = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGHUP)}
    before = termios.tcgetattr(number)
    tty.setcbreak(
        number, termios.TCSANOW
    )  # keys come one by one, and unseen; Ctrl-C stays what it is
    try:
        yield pressed
    finally:
        with suppress(termios.error):  # it has gone
            termios.tcsetattr(number, termios.TCSANOW, before)
        for one, handler in ends.items():
            signal.signal(one, handler)


def watch(
    look: Callable[[], str],
    say: Callable[[str], None],
    in_place: bool,
    press: Callable[[str], str] | None = None,
) -> None:
    """Show what `look` says until an exception ends it, or on a terminal the key LAST.

    Args:
        look: the text as it is now.
        say: prints a text where it is not shown in place.
        in_place: whether a terminal shows the newest alone.
        press: takes a key that was pressed, and says how the text is to be then; None: any key
            but LAST is passed over.

    Raises:
        BrokenPipeError: nobody reads it any more, whether there is anything new or not.
    """
    if not (in_place and sys.stdout.isatty()):
        said = ""
        while True:
            if (text := look()) != said:
                say(text)
                said = text
            time.sleep(PERIOD_S)
            if not _is_read():
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    from rich.live import Live
    from rich.text import Text

    first = Text.from_ansi(folded(look()))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with signals_wait(), _keyboard() as pressed, Live(first, auto_refresh=False) as shown:
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            while (key := pressed(PERIOD_S)) != LAST:
                text = press(key) if key and press else look()
                shown.update(Text.from_ansi(folded(text)), refresh=True)
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
