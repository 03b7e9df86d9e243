"""The pipeline of P1 section 2: stages with an overhead g and an inverse bandwidth G.

Owns the two value types, their validation, and the transformations that keep latency exact:
reversal, a header on every fragment, delays, shared resources.
"""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from careful.errors import InputError
from careful.html import Grid, rendered
from careful.plan import Limits

Array = npt.NDArray[np.float64]

KIB = 1024
#: Largest message; float64 holds sums of such sizes exactly.
MESSAGE_BYTES_MAX = 1 << 40
#: Largest cost (thirty years), so that no sum of costs overflows.
COST_US_MAX = 1e15
#: Most levels of groups.
GROUP_DEPTH_MAX = 16
#: Most stages of a pipeline; plans of more would take minutes.
STAGES_MAX = 64


@dataclass(frozen=True)
class Stage:
    """One store-and-forward stage (P1 section 2).

    name: name in tables, not empty.
    g_us: overhead of a fragment, µs, 0 to COST_US_MAX (includes the header's bytes).
    G_us_per_KiB: inverse bandwidth, µs per 1024 payload bytes, 0 to COST_US_MAX.
    group: its compound stage (P1 section 4.3), "" for none; "a/b" nests.
    resource: its thread, CPU or bus; stages of one resource never overlap; "" for its own.
    delay_us: latency after the stage that does not occupy it (propagation), µs, 0 to COST_US_MAX.
    Raises ValueError for anything else.
    """

    name: str
    g_us: float
    G_us_per_KiB: float
    group: str = ""
    resource: str = ""
    delay_us: float = 0.0

    def __post_init__(self) -> None:
        for field in ("name", "group", "resource"):
            text: object = getattr(self, field)
            if not isinstance(text, str) or any(unicodedata.category(c) == "Cc" for c in text):
                raise InputError(f"{field} is {text!r}, must be text without control characters")
        if not self.name:
            raise InputError("a stage has no name")
        for field in ("g_us", "G_us_per_KiB", "delay_us"):
            value: object = getattr(self, field)
            if not is_cost(value):
                raise InputError(
                    f"stage '{self.name}': {field} is {shortened(value)}, "
                    f"must be a number from 0 to {COST_US_MAX:g}"
                )
        parts = self.group.split("/") if self.group else []
        if "" in parts or len(parts) > GROUP_DEPTH_MAX:
            raise InputError(
                f"stage '{self.name}': group is {shortened(self.group)}, must be up to "
                f"{GROUP_DEPTH_MAX} names with slashes between them"
            )

    def time_us(self, size_bytes: float) -> float:
        """Returns the time a fragment of `size_bytes` occupies the stage, µs: g + x G (P1 2)."""
        return self.g_us + size_bytes * self.G_us_per_KiB / KIB


@contextmanager
def named(origin: str) -> Iterator[None]:
    """Names the origin in an InputError that the block raises."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{origin}: {error}") from None


def is_cost(value: object) -> bool:
    """Reports whether `value` is a number from 0 to COST_US_MAX (NaN and bool are not)."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return number and 0 <= value <= COST_US_MAX  # type: ignore[operator]


def shortened(value: object) -> str:
    """Returns a value's repr for an error, cut to 60 characters."""
    # An integer beyond Python's limit of digits has no repr.
    if isinstance(value, int) and abs(value) > 10**40:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class Pipeline:
    """A sequence of stages, first to last; raises ValueError for none or more than STAGES_MAX.

    name, source: its name, and the origin of the figures, for tables; size_min_bytes,
    size_max_bytes: the fragment sizes that were measured, None if the figures hold for any size;
    rests_on: assumptions of the figures, "" if they are exact.
    """

    stages: tuple[Stage, ...]
    name: str = ""
    source: str = ""
    size_min_bytes: int = 1
    size_max_bytes: int | None = None
    rests_on: str = ""

    def __post_init__(self) -> None:
        if self.size_max_bytes is not None:
            Limits(self.size_min_bytes, self.size_max_bytes)
        if not self.stages:
            raise InputError("a pipeline needs at least one stage")
        if len(self.stages) > STAGES_MAX:
            raise InputError(f"a pipeline of {len(self.stages)} stages: at most {STAGES_MAX}")
        seen: set[str] = set()
        for stage in self.stages:
            if stage.name in seen:
                raise InputError(f"two stages have the name '{stage.name}'")
            seen.add(stage.name)

    def _repr_html_(self) -> str:
        columns = ("stage", "g (µs)", "G (µs/KiB)", "delay (µs)", "group", "resource")
        rows = [
            (one.name, one.g_us, one.G_us_per_KiB, one.delay_us, one.group, one.resource)
            for one in self.stages
        ]
        return rendered([Grid(self.name, columns, rows), self.source])

    def __len__(self) -> int:
        return len(self.stages)

    def measured_with(self, size_bytes: float) -> bool:
        most = self.size_max_bytes
        return most is None or self.size_min_bytes <= size_bytes <= most

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
        """Sum of the delays, µs; latency grows by the sum, however a message is cut."""
        return math.fsum(stage.delay_us for stage in self.stages)

    def reversed(self) -> Pipeline:
        """Returns the same stages in the opposite order (P1 theorem 2)."""
        return replace(self, stages=self.stages[::-1])

    def with_header(self, header_bytes: float) -> Pipeline:
        """Returns the pipeline whose fragments have `header_bytes` more: g_j + h G_j at each stage.

        Raises ValueError unless the header has 0 to less than MESSAGE_BYTES_MAX bytes.
        """
        if not 0 <= header_bytes < MESSAGE_BYTES_MAX:
            raise InputError(
                f"header of {shortened(header_bytes)} bytes: must not be negative, and below "
                f"{MESSAGE_BYTES_MAX}"
            )
        return replace(
            self,
            stages=tuple(
                replace(stage, g_us=stage.g_us + header_bytes * stage.G_us_per_KiB / KIB)
                for stage in self.stages
            ),
        )

    def sequential(self) -> Pipeline:
        """Returns the equivalent pipeline without shared resources, for the closed forms.

        Neighbours on one resource become one stage, as P1 section 5.3.1 merges the two network DMAs
        and the receiver's host DMA of GAM. Raises ValueError if stages that share a resource are
        not neighbours or have a delay between them: only `simulate` covers these.
        """
        return self._sequential

    @cached_property
    def _sequential(self) -> Pipeline:
        named = [stage.resource for stage in self.stages if stage.resource]
        if len(set(named)) == len(named):
            return self
        merged: list[Stage] = []
        for stage in self.stages:
            last = merged[-1] if merged else None
            if last is not None and stage.resource and last.resource == stage.resource:
                if last.delay_us > 0:
                    raise InputError(
                        f"stages '{last.name}' and '{stage.name}' share '{stage.resource}' across "
                        f"a delay of {last.delay_us:g} µs: only the simulation covers this"
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
                    raise InputError(
                        f"stages '{other.name}' and '{stage.name}' share '{stage.resource}' and "
                        "are not neighbours: only the simulation covers this"
                    )
            merged.append(stage)
        return replace(self, stages=tuple(merged))

    def sequential_index(self) -> list[int]:
        """Returns the index in `sequential` of each stage (same ValueError)."""
        self.sequential()
        index: list[int] = []
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            joined = before is not None and stage.resource and before.resource == stage.resource
            index.append(index[-1] + (0 if joined else 1) if index else 0)
        return index

    def shares_resources(self) -> bool:
        """Reports whether `sequential` refuses this pipeline."""
        try:
            self.sequential()
        except InputError:
            return True
        return False

    def bottleneck(self, size_bytes: float) -> int:
        """Returns the index of the slowest stage for fragments of `size_bytes` (P1 section 2)."""
        return int(np.argmax(self.g_us + size_bytes * self.G_us_per_byte))

    def busiest(self, size_bytes: float) -> str:
        """Names the slowest stage or resource for fragments of `size_bytes`: "B", or "cpu (A, C)".

        Stages of one resource never overlap, so their times add up, adjacent or not.
        """
        busy: dict[tuple[str, str], tuple[float, list[str]]] = {}
        for stage in self.stages:
            key = (stage.resource, "" if stage.resource else stage.name)
            sum_us, names = busy.get(key, (0.0, []))
            busy[key] = (sum_us + stage.time_us(size_bytes), [*names, stage.name])
        (resource, _), (_, names) = max(busy.items(), key=lambda item: item[1][0])
        return names[0] if len(names) == 1 else f"{resource} ({', '.join(names)})"


def check_message_bytes(message_bytes: float) -> None:
    """Raises ValueError unless a message of `message_bytes` can be planned."""
    if not message_bytes >= 1 or message_bytes == math.inf:
        raise InputError(f"a message of {shortened(message_bytes)} bytes: must be at least 1 byte")
    if message_bytes > MESSAGE_BYTES_MAX:
        raise InputError(
            f"a message of {shortened(message_bytes)} bytes: at most {MESSAGE_BYTES_MAX}"
        )
