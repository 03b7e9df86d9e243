"""Parts of a vector that no host is asked for."""

from __future__ import annotations

import pytest
from careful._abi import ffi
from careful.memory.client import move


@pytest.mark.parametrize("offset", [-1, 1 << 64])
def test_move__offset_is_impossible(offset: int) -> None:
    """The error is clear, and the buffers are free again while it is handled."""
    buffer = bytearray(1)
    with pytest.raises(ValueError, match="offset") as caught:
        move(ffi.NULL, [(0, buffer), (offset, buffer)], 0, "h2:name")
    buffer.extend(b"resized")
    assert caught.value.__traceback__


def test_move__reads_into_what_can_be_written() -> None:
    with pytest.raises((BufferError, TypeError)):
        move(ffi.NULL, [(0, b"constant")], 0, "h2:name")
