"""`--watch` shows a text again whenever it changes."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

import pytest
from careful.render import refresh


class OverError(Exception):
    """Ends the looks."""


def looks(*texts: str) -> Callable[[], str]:
    """Returns successive looks, then raises the end."""
    seen = iter(texts)

    def look() -> str:
        for text in seen:
            return text
        raise OverError

    return look


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh, "PERIOD_S", 0)


def test_watch__reports_each_change_once() -> None:
    lines: list[str] = []
    with pytest.raises(OverError):
        refresh.watch(looks("a", "a", "b", "b", "a"), lines.append, in_place=False)
    assert lines == ["a", "b", "a"]


def test_watch__ends_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a change nothing is written, so the closed pipe was once not noticed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(BrokenPipeError):
            refresh.watch(looks("a", "a"), lambda _: None, in_place=True)


def test_watch__a_terminal_shows_the_newest_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(slave, "w", encoding="utf-8") as terminal, os.fdopen(master, "rb", 0) as seen:
        monkeypatch.setattr(sys, "stdout", terminal)
        with pytest.raises(OverError):
            refresh.watch(looks("first\nline", "second\nline"), lines.append, in_place=True)
        print("END", file=terminal, flush=True)
        shown = ""
        while "END" not in shown:  # output comes in pieces
            shown += os.read(seen.fileno(), 65536).decode()
    assert not lines
    first, second = shown.index("first"), shown.index("second")
    assert first < second
    assert "\x1b[" in shown[first:second]  # the cursor moves up before the next text


def test_watch__keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key works at once, q ends it, and the terminal is restored."""
    monkeypatch.setattr(refresh, "PERIOD_S", 5)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    master, slave = pty.openpty()
    pressed: list[str] = []

    def press(key: str) -> str:
        pressed.append(key)
        os.write(master, b"q")
        return "sorted"

    with os.fdopen(slave, "r+b", 0) as terminal:
        before = termios.tcgetattr(terminal)
        number = terminal.fileno()
        with open(number, "w", closefd=False) as out, open(number, closefd=False) as keys:
            monkeypatch.setattr(sys, "stdout", out)
            monkeypatch.setattr(sys, "stdin", keys)
            os.write(master, b"s")
            refresh.watch(lambda: "first", lambda _: None, in_place=True, press=press)
        assert pressed == ["s"]
        assert termios.tcgetattr(terminal) == before
    shown = b""
    with suppress(OSError):  # EIO at the end; a read may bring a part
        while part := os.read(master, 65536):
            shown += part
    assert b"sorted" in shown
    os.close(master)


#: Sends itself a signal just after hiding the cursor, before any output.
EARLY = """
import os
from rich.console import Console
original = Console.show_cursor
def show_cursor(self, show=True):
    original(self, show)
    if not show:
        os.kill(os.getpid(), {number})
Console.show_cursor = show_cursor
"""


@pytest.mark.parametrize("early", [EARLY, ""], ids=["early", "shown"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_watch__killed_restores_the_terminal(number: signal.Signals, early: str) -> None:
    """The terminal once stayed without echo and cursor."""
    program = early.format(number=int(number))
    program += (
        "from careful.render import refresh; refresh.watch(lambda: 'shown', print, in_place=True)"
    )
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", program])
    shown = b""
    while not early and b"shown" not in shown:
        shown += os.read(terminal, 65536)
    if not early:
        os.kill(pid, number)
    with suppress(OSError):  # EIO once the program is gone
        while more := os.read(terminal, 65536):
            shown += more
    assert os.waitpid(pid, 0)[1]
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is there again
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    os.close(terminal)


#: Sends itself SIGINT just before the cursor comes back.
LATE = EARLY.replace("    original(self, show)\n", "").replace("if not show", "if show")
LATE = LATE.replace("Console.show_cursor =", "    original(self, show)\nConsole.show_cursor =")


@pytest.mark.parametrize("when", [EARLY, LATE], ids=["early", "late"])
def test_bar__interrupted_restores_the_terminal(when: str) -> None:
    program = when.format(number=int(signal.SIGINT))
    program += "from careful.render.files.bar import Bar\nwith Bar(): pass"
    pid, terminal = pty.fork()
    if not pid:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", program])
    shown = b""
    with suppress(OSError):  # EIO once the program is gone
        while more := os.read(terminal, 65536):
            shown += more
    assert os.waitpid(pid, 0)[1]
    assert b"KeyboardInterrupt" in shown
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")  # the cursor is there again
    os.close(terminal)
