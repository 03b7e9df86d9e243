"""The pipeline of P1 section 2: stages with an overhead g and an inverse bandwidth G.

Owns the two value types, their validation, and the transformations that keep
latency exact: reversal, a header on every fragment, delays, shared resources.
Reading files is `files.py`; what a pipeline costs is `latency.py`.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

KIB = 1024
#: Larger messages are refused: sizes are held in float64 and in the map's u32 sums.
MESSAGE_BYTES_MAX = 1 << 40


@dataclass(frozen=True)
class Stage:
    """One store-and-forward stage (P1 section 2).

    name: what it is called in tables.
    g_us: overhead of a fragment, µs, finite, >= 0 (it includes the header's bytes).
    G_us_per_KiB: inverse bandwidth, µs per 1024 payload bytes, finite, >= 0.
    group: compound stage it belongs to (P1 section 4.3), "" for none; "a/b" nests.
    resource: thread, CPU or bus it runs on; stages of one resource never overlap; "" for its own.
    delay_us: latency after it that does not occupy it (propagation), µs, finite, >= 0.
    Raises ValueError for anything else.
    """

    name: str
    g_us: float
    G_us_per_KiB: float
    group: str = ""
    resource: str = ""
    delay_us: float = 0.0

    def __post_init__(self) -> None:
        for field in ("g_us", "G_us_per_KiB", "delay_us"):
            value: Any = getattr(self, field)
            if not _is_number(value) or not math.isfinite(value) or value < 0:
                raise ValueError(
                    f"stage '{self.name}': {field} is {value!r}, "
                    "must be a number, finite and not negative"
                )

    def time_us(self, size_bytes: float) -> float:
        """Time a fragment of `size_bytes` occupies the stage, µs: t = g + x G (P1 section 2)."""
        return self.g_us + size_bytes * self.G_us_per_KiB / KIB


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class Pipeline:
    """A sequence of stages, first to last; raises ValueError when there are none.

    name, source: for tables: what it is, and where the numbers come from.
    """

    stages: tuple[Stage, ...]
    name: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a pipeline needs at least one stage")
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"stage name '{name}' is used twice")

    def __len__(self) -> int:
        return len(self.stages)

    @cached_property
    def g_us(self) -> Array:
        """Overheads, µs per fragment, shape (n,), float64."""
        return np.array([stage.g_us for stage in self.stages])

    @cached_property
    def G_us_per_byte(self) -> Array:
        """Inverse bandwidths, µs per byte, shape (n,), float64."""
        return np.array([stage.G_us_per_KiB for stage in self.stages]) / KIB

    @cached_property
    def delay_us(self) -> float:
        """Sum of the delays, µs; every fragment meets each once, so latency moves by it."""
        return math.fsum(stage.delay_us for stage in self.stages)

    def reversed(self) -> Pipeline:
        """The same stages in the opposite order (P1 theorem 2)."""
        return replace(self, stages=self.stages[::-1])

    def with_header(self, header_bytes: float) -> Pipeline:
        """The pipeline whose fragments carry `header_bytes` more: g_j + h G_j at every stage.

        Raises ValueError for a negative or infinite header.
        """
        if not math.isfinite(header_bytes) or header_bytes < 0:
            raise ValueError(f"header of {header_bytes} bytes: must be finite and not negative")
        return replace(
            self,
            stages=tuple(
                replace(stage, g_us=stage.g_us + header_bytes * stage.G_us_per_KiB / KIB)
                for stage in self.stages
            ),
        )

    def sequential(self) -> Pipeline:
        """The equivalent pipeline without shared resources, for the closed forms.

        Neighbours on one resource become one stage, as P1 section 5.3.1 merges the two
        network DMAs and the receiver's host DMA of GAM. Raises ValueError when stages
        that are not neighbours, or have a delay between them, share a resource: no
        single stage behaves like them, only `simulate` follows them.
        """
        named = [stage.resource for stage in self.stages if stage.resource]
        if len(set(named)) == len(named):
            return self
        merged: list[Stage] = []
        for stage in self.stages:
            last = merged[-1] if merged else None
            if last is not None and stage.resource and last.resource == stage.resource:
                if last.delay_us > 0:
                    raise ValueError(
                        f"stages '{last.name}' and '{stage.name}' share '{stage.resource}' across "
                        f"a delay of {last.delay_us:g} µs: only the simulation follows that"
                    )
                merged[-1] = Stage(
                    name=f"{last.name} + {stage.name}",
                    g_us=last.g_us + stage.g_us,
                    G_us_per_KiB=last.G_us_per_KiB + stage.G_us_per_KiB,
                    group=last.group if last.group == stage.group else "",
                    resource=stage.resource,
                    delay_us=stage.delay_us,
                )
                continue
            for other in merged:
                if stage.resource and other.resource == stage.resource:
                    raise ValueError(
                        f"stages '{other.name}' and '{stage.name}' share '{stage.resource}' and "
                        "are not neighbours: only the simulation follows that"
                    )
            merged.append(stage)
        return replace(self, stages=tuple(merged))

    def sequential_index(self) -> list[int]:
        """For each stage, the index of its stage in `sequential` (same ValueError)."""
        self.sequential()
        index: list[int] = []
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            joined = before is not None and stage.resource and before.resource == stage.resource
            index.append(index[-1] + (0 if joined else 1) if index else 0)
        return index

    def shares_resources(self) -> bool:
        """Whether `sequential` refuses this pipeline."""
        try:
            self.sequential()
        except ValueError:
            return True
        return False

    def bottleneck(self, size_bytes: float) -> int:
        """Index of the slowest stage for fragments of `size_bytes` (P1 section 2)."""
        return int(np.argmax(self.g_us + size_bytes * self.G_us_per_byte))


@dataclass(frozen=True)
class Limits:
    """Bounds of a fragment in whole payload bytes; `max_bytes` None is no bound."""

    min_bytes: int = 1
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.min_bytes < 1:
            raise ValueError(f"smallest fragment is {self.min_bytes} bytes, must be at least 1")
        if self.max_bytes is not None and self.max_bytes < self.min_bytes:
            raise ValueError(
                f"largest fragment of {self.max_bytes} bytes is below "
                f"the smallest of {self.min_bytes}"
            )

    def counts(self, message_bytes: float) -> tuple[int, int]:
        """Least and greatest number of fragments of a message of `message_bytes`."""
        least = 1 if self.max_bytes is None else math.ceil(message_bytes / self.max_bytes)
        return least, max(least, int(message_bytes // self.min_bytes))


def check_message_bytes(message_bytes: float) -> None:
    """Raise ValueError unless a message of `message_bytes` can be planned."""
    if not math.isfinite(message_bytes) or message_bytes < 1:
        raise ValueError(f"a message of {message_bytes} bytes: must be at least 1 byte")
    if message_bytes > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {message_bytes} bytes: at most {MESSAGE_BYTES_MAX}")
