"""careful next to kernel TCP between the same two hosts: a request, a block and a stream, in turn.

Owns the rounds. Each round times every kind over both, one after the other, so that whatever else
the machines do meets both alike; the ratio is that of a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from careful.measure.estimators.logp import Layer
from careful.units import shown_bytes

#: Bursts of one message each that a turn has at most; it ends after a tenth of a second.
_BURSTS = 256
_ROUNDS_MIN = 4
_BLOCK_BYTES = 8 << 10
#: A stream's block is the largest of 8 KiB to 1 MiB that the path moves in this time, seconds.
_STREAM_DOUBLINGS, _STREAM_S = 7, 0.5


@dataclass(frozen=True)
class Kind:
    """A message that is timed.

    Attributes:
        name: for people.
        message: "request" or "get", of careful.
        nbytes: of the message that carries the data.
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
    """Returns the kinds that suit a path: on a slow one a stream has smaller blocks."""
    took_s = 1e-6 * float(np.min(careful(_BLOCK).bursts([1], 0.0, _BURSTS).done_us))
    sizes = [_BLOCK_BYTES << doublings for doublings in range(_STREAM_DOUBLINGS + 1)]
    nbytes = max(one for one in sizes if one == sizes[0] or took_s * one / sizes[0] <= _STREAM_S)
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
    """Figures of a kind, by layer, and careful's over TCP's; a rate counts as a rate."""

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
    every = kinds(next(iter(layers.values())))
    made = {(name, kind): make(kind) for name, make in layers.items() for kind in every}
    values: dict[tuple[str, Kind], list[float]] = {key: [] for key in made}
    rounds, until = 0, clock() + seconds
    while clock() < until or rounds <= _ROUNDS_MIN:
        for (name, kind), layer in made.items():
            done_us = float(np.median(layer.bursts([1], 0.0, _BURSTS).done_us))
            value = 8e-3 * kind.nbytes / done_us if kind.is_rate else done_us
            if rounds:  # the first wakes both ends
                values[name, kind].append(value)
        rounds += 1
    return [_row(kind, list(layers), values) for kind in every], rounds - 1


def _row(kind: Kind, names: Sequence[str], values: Mapping[tuple[str, Kind], list[float]]) -> Row:
    each = {name: np.array(values[name, kind]) for name in names}
    by_layer = {name: _quartiles(one) for name, one in each.items()}
    ours, theirs = each[names[0]], each[names[-1]]
    return Row(kind, by_layer, _quartiles(ours / theirs) if len(names) > 1 else None)


def _quartiles(found: npt.NDArray[np.float64]) -> Quartiles:
    return Quartiles(*(float(one) for one in np.percentile(found, (25, 50, 75))))
