"""Shows a text again whenever it changes: in place on a terminal, else one after another."""

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

from careful.errors import EndedBySignal
from careful.render.tables import folded

#: Time between two looks, seconds.
PERIOD_S = 0.5
_ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
#: The key that ends watch().
LAST = "q"


@contextmanager
def signals_wait() -> Iterator[None]:
    """Holds back signals that end this process, so that the terminal is never left half changed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_read() -> bool:
    """Reports whether standard output has a reader; False for a pipe without one."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file
        return True
    poller = select.poll()
    poller.register(number, 0)
    return not any(events & select.POLLERR for _, events in poller.poll(0))


def has_keys() -> bool:
    """Reports whether the terminal's user can press keys: the terminal belongs to our job."""
    try:
        number = sys.stdin.fileno()
        return sys.stdout.isatty() and sys.stdin.isatty() and os.tcgetpgrp(number) == os.getpgrp()
    except (AttributeError, OSError, ValueError):  # no standard input
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
        raise EndedBySignal(signal_number)

    # Like Ctrl-C, these signals must restore the terminal.
    ends = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGHUP)}
    before = termios.tcgetattr(number)
    tty.setcbreak(
        number, termios.TCSANOW
    )  # keys arrive one by one without echo; Ctrl-C still works
    try:
        yield pressed
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(number, termios.TCSANOW, before)
        for one, handler in ends.items():
            signal.signal(one, handler)


def watch(
    look: Callable[[], str],
    say: Callable[[str], None],
    in_place: bool,
    press: Callable[[str], str] | None = None,
) -> None:
    """Shows the result of `look` until an exception, or on a terminal the key LAST.

    Args:
        look: returns the present text.
        say: prints a text if it is not shown in place.
        in_place: whether a terminal shows only the newest text.
        press: handles a key and returns the new text; None: all keys but LAST are ignored.

    Raises:
        BrokenPipeError: the reader is gone, even if there is no new text to print.
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
