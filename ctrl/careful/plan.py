"""A fragment plan as the tune map holds it: six u32 for each of sixteen message-size classes.

Computes sizes like datapath/message/plan.c, so that the model prices the bytes that the datapath
sends; a test compares both. Does not import numpy, which `tune show` does not need.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass

from careful.errors import InputError

CLASS_COUNT = 16
CLASS_BYTES_FIRST = 64
Q16_ONE = 1 << 16
U32_MAX = (1 << 32) - 1
#: The smallest fragment of the datapath, except for a peak or a tail below it, bytes.
FRAGMENT_BYTES_MIN = 16
#: The most fragments of a plan: only pipelines without overhead ask for more.
FRAGMENTS_MAX = 1 << 20


def class_bytes(index: int) -> int:
    """Returns the largest message of a class, bytes; the last class holds larger ones, too."""
    return CLASS_BYTES_FIRST << index


def class_of(nbytes: int) -> int:
    """Returns the class of a message of nbytes."""
    return min(max(0, (nbytes - 1).bit_length() - 6), CLASS_COUNT - 1)


@dataclass(frozen=True)
class Limits:
    """Bounds of a fragment in whole payload bytes; `max_bytes` None is no bound.

    Raises ValueError for bounds that are not whole, below 1, or exclude each other.
    """

    min_bytes: int = 1
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        for value in (self.min_bytes, self.max_bytes):
            number: object = value
            if number is not None and not isinstance(number, numbers.Integral):
                raise InputError(f"a fragment must have a whole number of bytes, not {value!r}")
        if self.min_bytes < 1:
            raise InputError(f"smallest fragment is {self.min_bytes} bytes, must be at least 1")
        if self.max_bytes is not None and self.max_bytes < self.min_bytes:
            raise InputError(
                f"largest fragment of {self.max_bytes} bytes is below "
                f"the smallest of {self.min_bytes}"
            )

    def counts(self, message_bytes: float) -> tuple[int, int]:
        """Returns the least and greatest number of fragments of a message.

        If no number satisfies both bounds of a size, only the upper bound holds. At most
        FRAGMENTS_MAX; raises ValueError if even the least number is above it.
        """
        least = 1 if self.max_bytes is None else math.ceil(message_bytes / self.max_bytes)
        if least > FRAGMENTS_MAX:
            raise InputError(
                f"{message_bytes:g} bytes in fragments of at most {self.max_bytes} bytes: "
                f"more than {FRAGMENTS_MAX} fragments"
            )
        return least, min(max(least, int(message_bytes // self.min_bytes)), FRAGMENTS_MAX)

    def keeps(self, message_bytes: float) -> bool:
        """Reports whether some number of fragments satisfies both bounds."""
        least, _ = self.counts(message_bytes)
        return message_bytes < self.min_bytes or message_bytes // least >= self.min_bytes


#: Default payload of a frame, bytes.
FRAME_LIMITS = Limits(64, 3750)


@dataclass(frozen=True)
class Plan:
    """The fragment sizes of one message class (struct careful_plan), all u32, in payload bytes.

    The first fragment has first_bytes. The next size is (size * ratio_q16 >> 16) + step_bytes,
    until it reaches peak_bytes (0: never), which is sent once. After the peak the next size is
    (size * down_ratio_q16 >> 16) + down_step_bytes. A plan is fixed if its ratio is 65536 and its
    step 0: the fragments of a message are then equal, and none is larger than first_bytes.

    Raises:
        InputError: a value is no u32, or the first fragment has no bytes.
    """

    first_bytes: int
    ratio_q16: int = Q16_ONE
    step_bytes: int = 0
    peak_bytes: int = 0
    down_ratio_q16: int = Q16_ONE
    down_step_bytes: int = 0

    def __post_init__(self) -> None:
        for name, value in self.as_dict().items():
            if not 0 <= value <= U32_MAX:
                raise InputError(f"{name} is {value}: not a u32")
        if self.first_bytes < 1:
            raise InputError("first_bytes is 0: a fragment carries at least a byte")

    @classmethod
    def fixed(cls, size_bytes: int) -> Plan:
        return cls(first_bytes=size_bytes, peak_bytes=size_bytes)

    @property
    def is_fixed(self) -> bool:
        rises = self.ratio_q16 != Q16_ONE or self.step_bytes > 0
        falls = self.down_ratio_q16 != Q16_ONE or self.down_step_bytes > 0
        return not rises and not (falls and 0 < self.peak_bytes <= self.first_bytes)

    def as_dict(self) -> dict[str, int]:
        return dict(vars(self))

    def sizes(self, message_bytes: int, limits: Limits = FRAME_LIMITS) -> list[int]:
        """Returns the fragments of a message on an idle path, bytes, as the datapath cuts it.

        limits: the upper one is a frame's payload; the lower one bounds what is planned, not what
        is sent.
        """
        most = limits.max_bytes or U32_MAX
        size = max(self.first_bytes, FRAGMENT_BYTES_MIN)
        if self.is_fixed:
            # Computed, not iterated: large messages are planned while a user waits.
            size = min(size, most)
            if message_bytes > size:
                size = -(-message_bytes // -(-message_bytes // size))
            whole, tail = divmod(message_bytes, size)
            return [size] * whole + ([tail] if tail else [])
        return list(self._ramp(message_bytes, most))

    def _ramp(self, message_bytes: int, most_bytes: int) -> Iterator[int]:
        """Yields `sizes` of a plan that is not fixed."""
        size, left = max(self.first_bytes, FRAGMENT_BYTES_MIN), message_bytes
        falling = False
        while left > 0:
            if not falling and 0 < self.peak_bytes <= size:
                size, falling = self.peak_bytes, True
            yield min(size, most_bytes, left)
            left -= min(size, most_bytes, left)
            ratio = self.down_ratio_q16 if falling else self.ratio_q16
            step = self.down_step_bytes if falling else self.step_bytes
            size = max(FRAGMENT_BYTES_MIN, min((size * ratio >> 16) + step, U32_MAX))

    def sizes_inside(self, message_bytes: int, limits: Limits) -> list[int] | None:
        """Returns `sizes`, or None if a fragment before the tail is below the lower limit."""
        if self.is_fixed:
            sizes = self.sizes(message_bytes, limits)
            return sizes if min(sizes[:-1], default=U32_MAX) >= limits.min_bytes else None
        sizes, left = [], message_bytes
        for size in self._ramp(message_bytes, limits.max_bytes or U32_MAX):
            sizes.append(size)
            left -= size
            if left > 0 and size < limits.min_bytes:
                return None
        return sizes
