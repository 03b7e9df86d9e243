"""careful next to kernel TCP between the same two hosts: a request, a block and a stream, in turn.

Each round times every kind over both, one after the other, so that other load meets both alike. The
ratio is computed round by round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from careful.measure.endpoints.logp import Layer
from careful.units import shown_bytes

#: Most bursts of one message in a turn, which ends after a tenth of a second.
_BURSTS = 256
_ROUNDS_MIN = 4
_BLOCK_BYTES = 8 << 10
#: A stream's block is the largest of 8 KiB to 1 MiB that the path moves in this time, seconds.
_STREAM_DOUBLINGS, _STREAM_S = 7, 0.5


@dataclass(frozen=True)
class Kind:
    """A message that is timed.

    Attributes:
        name: name for users.
        message: careful's "request" or "get".
        nbytes: size of the message with the data.
        is_rate: the figure is a rate in Gbit/s; else a time in µs.
    """

    name: str
    message: str
    nbytes: int
    is_rate: bool = False

    @property
    def unit(self) -> str:
        return "gbit_per_s" if self.is_rate else "us"


REQUEST = Kind("request, 64 B", "request", 64)
_BLOCK = Kind("block, 8 KiB", "get", _BLOCK_BYTES)


def kinds(careful: Callable[[Kind], Layer]) -> list[Kind]:
    """Returns the kinds for a path: on a slow path a stream has smaller blocks."""
    took_s = 1e-6 * float(np.min(careful(_BLOCK).bursts([1], 0.0, _BURSTS).done_us))
    sizes = [_BLOCK_BYTES << doublings for doublings in range(_STREAM_DOUBLINGS + 1)]
    nbytes = max(
        size for size in sizes if size == sizes[0] or took_s * size / sizes[0] <= _STREAM_S
    )
    stream = Kind(f"stream, {shown_bytes(nbytes)}", "get", nbytes, is_rate=True)
    return [REQUEST, _BLOCK, stream]


@dataclass(frozen=True)
class Quartiles:
    """The median of the rounds, and the quartiles next to it."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Row:
    """Figures of a kind, by layer; ratio: careful's figure over TCP's."""

    kind: Kind
    by_layer: Mapping[str, Quartiles]
    ratio: Quartiles | None


def measure(
    layers: Mapping[str, Callable[[Kind], Layer]],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[list[Row], int]:
    """Measures rounds until the time is over; returns the rows and the number of rounds.

    layers: by name, careful first: makes the layer of a kind.
    """
    timed = kinds(next(iter(layers.values())))
    layer_by_kind = {(name, kind): make(kind) for name, make in layers.items() for kind in timed}
    values: dict[tuple[str, Kind], list[float]] = {key: [] for key in layer_by_kind}
    rounds, until = 0, clock() + seconds
    while clock() < until or rounds <= _ROUNDS_MIN:
        for (name, kind), layer in layer_by_kind.items():
            done_us = float(np.median(layer.bursts([1], 0.0, _BURSTS).done_us))
            value = 8e-3 * kind.nbytes / done_us if kind.is_rate else done_us
            if rounds:  # the first round wakes both ends
                values[name, kind].append(value)
        rounds += 1
    return [_row(kind, list(layers), values) for kind in timed], rounds - 1


def _row(kind: Kind, names: Sequence[str], values: Mapping[tuple[str, Kind], list[float]]) -> Row:
    figures = {name: np.array(values[name, kind]) for name in names}
    by_layer = {name: _quartiles(samples) for name, samples in figures.items()}
    ours, theirs = figures[names[0]], figures[names[-1]]
    return Row(kind, by_layer, _quartiles(ours / theirs) if len(names) > 1 else None)


def _quartiles(samples: npt.NDArray[np.float64]) -> Quartiles:
    return Quartiles(*(float(quartile) for quartile in np.percentile(samples, (25, 50, 75))))
