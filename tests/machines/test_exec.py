"""Whose answer it is that a machine gives, and why one does not start, without a machine."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

from emulated.agent import PIECE
from emulated.guest import begin, last_words

TOKEN = b"0123456789abcdef"


def test_begin__what_others_did_not_wait_for_is_read_over() -> None:
    """Once the status of a command that had timed out was taken for the next one's."""
    late = PIECE.pack(1, 4) + b"text" + PIECE.pack(0, 1) + b"0"
    stream = io.BytesIO(late + TOKEN[:5] + TOKEN + PIECE.pack(0, 1) + b"3")
    begin(stream, TOKEN)
    assert stream.read() == PIECE.pack(0, 1) + b"3"


def test_begin__the_machine_ends() -> None:
    with pytest.raises(ConnectionError):
        begin(io.BytesIO(b"late" + TOKEN[:-1]), TOKEN)


def test_last_words__say_why_the_kernel_gave_up(tmp_path: Path) -> None:
    """Once a failed test told where the kernel had been in memory, and no more."""
    console = tmp_path / "console"
    console.write_text("")
    assert last_words(console) == "its console is silent"
    console.write_text("init: no root file system\n")
    assert last_words(console) == "init: no root file system"
    console.write_text("[ 6.8] Kernel panic - not syncing: why\r\n[ 6.8] Kernel Offset: 0x2be\n")
    assert last_words(console) == "[ 6.8] Kernel panic - not syncing: why"
