"""Converts a program's arguments for C: handler numbers, argument words, payloads."""

from __future__ import annotations

import operator

from careful._abi import Buffer, CData, ffi, lib


def checked_handler(number: int) -> int:
    """Returns a valid handler number. Raises TypeError or ValueError."""
    number = operator.index(number)
    if not 0 <= number < lib.CAREFUL_HANDLERS:
        raise ValueError(f"handler {number} must be from 0 to {lib.CAREFUL_HANDLERS - 1}")
    return number


def payload_of(value: Buffer) -> CData:
    """Returns a payload for C. Raises TypeError or ValueError: `value` is no contiguous buffer."""
    if isinstance(value, str):
        raise TypeError("a payload is bytes or another buffer, not str: encode it")
    return ffi.from_buffer(value)


def words(args: tuple[int, ...]) -> CData:
    """Returns up to four words for C. Raises ValueError: there are more. Raises OverflowError: a
    word does not fit 32 bits.
    """
    if len(args) > lib.CAREFUL_AM_ARGS:
        raise ValueError(f"a message has at most {lib.CAREFUL_AM_ARGS} args, not {len(args)}")
    return ffi.new("uint32_t[]", [*args, 0, 0, 0, 0][: lib.CAREFUL_AM_ARGS])
