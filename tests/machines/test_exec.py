"""Tests, without a machine: a command gets its own answer, and a failed start has a reason."""

from __future__ import annotations

import io
import os
import pty
import sys
import time
import tty
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from emulated import agent
from emulated.agent import PIECE, Port
from emulated.guest import begin, last_words

TOKEN = b"0123456789abcdef"


def test_begin__skips_answers_to_earlier_clients() -> None:
    """Formerly the status of a command that timed out was taken for the next command's."""
    late = PIECE.pack(1, 4) + b"text" + PIECE.pack(0, 1) + b"0"
    stream = io.BytesIO(late + TOKEN[:5] + TOKEN + PIECE.pack(0, 1) + b"3")
    begin(stream, TOKEN)
    assert stream.read() == PIECE.pack(0, 1) + b"3"


def test_begin__the_machine_ends() -> None:
    with pytest.raises(ConnectionError):
        begin(io.BytesIO(b"late" + TOKEN[:-1]), TOKEN)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Port, int]]:
    """Returns both ends of a pseudo terminal; a machine's end sees whether the other is open."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: ours)
        one = Port(Path("exec0"))
    yield one, theirs
    os.close(ours)


def asked(*argv: str) -> dict[str, object]:
    return {"token": TOKEN.decode(), "argv": argv, "cwd": "/", "env": dict(os.environ)}


def test_agent__learns_late_that_the_earlier_client_is_gone(
    port: tuple[Port, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formerly the agent ended the present client's command without an answer."""
    monkeypatch.setattr(agent, "KNOWN_S", 600.0)
    one, theirs = port
    name = os.ttyname(theirs)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(one._run, asked("sh", "-c", "sleep 0.5; echo said; exit 3"))
        with os.fdopen(theirs, "rb", buffering=0) as stream:
            begin(stream, TOKEN)
        time.sleep(0.2)  # the agent sees that the client has gone
        with Path(name).open("rb", buffering=0) as stream:
            begin(stream, PIECE.pack(1, 5) + b"said\n" + PIECE.pack(0, 1) + b"3")
            done.result(30)


@pytest.mark.parametrize("another", [False, True])
def test_agent__client_is_gone(
    port: tuple[Port, int], another: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a client goes, and no other one comes, its command is ended."""
    monkeypatch.setattr(agent, "KNOWN_S", 600.0 if another else 0.1)
    one, theirs = port
    name = os.ttyname(theirs)
    with ThreadPoolExecutor() as pool:
        done = pool.submit(one._run, asked("sleep", "600"))
        with os.fdopen(theirs, "rb", buffering=0) as stream:
            begin(stream, TOKEN)
        if another:
            with Path(name).open("wb", buffering=0) as stream:
                stream.write(b"{}\n")
                done.result(30)
        done.result(30)


def test_last_words__say_why_the_kernel_gave_up(tmp_path: Path) -> None:
    """Formerly a failed test reported only the kernel's place in memory."""
    console = tmp_path / "console"
    console.write_text("")
    assert last_words(console) == "its console is silent"
    console.write_text("init: no root file system\n")
    assert last_words(console) == "init: no root file system"
    console.write_text("[ 6.8] Kernel panic - not syncing: why\r\n[ 6.8] Kernel Offset: 0x2be\n")
    assert last_words(console) == "[ 6.8] Kernel panic - not syncing: why"
