"""Measurements of all pairs of hosts: latency, G and losses, and the rule for odd pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from careful.fleet.hosts import Host
from careful.fleet.running import Outcome, number, tables

#: A modified z-score beyond ODD is odd (Iglewicz and Hoaglin, How to Detect and Handle Outliers,
#: 1993), among ODD_PAIRS_MIN pairs or more.
ODD, ODD_PAIRS_MIN = 3.5, 4
#: MAD to standard deviation, of a normal distribution.
_SIGMA = 1.4826
#: A difference below this part of the median is never odd.
_ALIKE = 0.05


@dataclass(frozen=True)
class Cell:
    """One ordered pair.

    Attributes:
        latency_us: half of the least round trip of a small message; None: unknown.
        G_us_per_KiB: of all stages of the path together; None: unknown.
        lost_frames: on the way there during all measurements; None: unknown.
        sent_frames: frames sent meanwhile.
        error: why nothing was measured; "".
    """

    latency_us: float | None = None
    G_us_per_KiB: float | None = None
    lost_frames: int | None = None
    sent_frames: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Odd:
    """An odd figure of a pair.

    Attributes:
        pair: from, to.
        figure: latency_us, G_us_per_KiB or lost_frames.
        value: of this pair.
        median: of all.
        score: deviations from the median; None for losses: one frame is odd.
    """

    pair: tuple[str, str]
    figure: str
    value: float
    median: float
    score: float | None


#: From host, to host -> the pair's figures.
Matrix = dict[tuple[str, str], Cell]


def _trips(found: Mapping[str, object]) -> list[tuple[float, float]]:
    """Returns sizes, bytes, with the least round trip of each, µs."""
    pairs = [
        (number(one, "size_bytes"), number(one, "least_us"))
        for one in tables(found.get("round_trip_minima"))
    ]
    return sorted((size, least) for size, least in pairs if size is not None and least is not None)


def _latency_us(found: Mapping[str, object]) -> float | None:
    trips = _trips(found)
    return trips[0][1] / 2 if trips else None


def _G_us_per_KiB(found: Mapping[str, object]) -> float | None:
    """Returns the cost of a byte in the least round trip; one way, since answers are empty.

    The median of the slopes between all sizes (Theil and Sen): a disturbed size hardly moves it.
    """
    trips = _trips(found)
    slopes = [
        (larger_us - smaller_us) / (size - less) * 1024
        for (less, smaller_us), (size, larger_us) in combinations(trips, 2)
        if size > less
    ]
    slope = median(slopes) if slopes else -1.0
    return slope if slope >= 0 else None  # a path that holds frames back has no line


def _counts(status: Outcome, there: Host, address: str) -> tuple[int, int] | None:
    """Returns the frames that a host sent to another and lost; None if unknown."""
    for instance in tables(status.figures.get("instances")):
        for peer in tables(instance.get("peers")):
            if any(peer.get(key) in (there.address, address) for key in ("address", "node")):
                sent, lost = number(peer, "tx_frames"), number(peer, "lost_there_frames")
                return int(sent or 0), int(lost or 0)
    return None


def made(
    hosts: Sequence[Host],
    measured: Sequence[Outcome],
    before: Sequence[Outcome],
    after: Sequence[Outcome],
) -> Matrix:
    """Returns the matrix.

    Args:
        hosts: all.
        measured: `measure blackbox` of each pair; the job's name is the target.
        before: `status` of each host, before the measurements.
        after: `status` of each host, after them.
    """
    named = {one.name: one for one in hosts}
    first = {one.host: one for one in before}
    last = {one.host: one for one in after}
    found: Matrix = {}
    for one in measured:
        pair = (one.host, one.job.name)
        if one.error:
            found[pair] = Cell(error=one.error)
            continue
        there = named[one.job.name]
        inputs = one.figures.get("inputs")
        address = str(inputs.get("address", "")) if isinstance(inputs, dict) else ""
        now = _counts(last[one.host], there, address)
        old = _counts(first[one.host], there, address) or (0, 0)  # no session yet
        if first[one.host].error:  # then earlier losses would count, too
            now = None
        if now and now[0] < old[0]:  # carefuld was restarted
            old = (0, 0)
        found[pair] = Cell(
            _latency_us(one.figures),
            _G_us_per_KiB(one.figures),
            max(0, now[1] - old[1]) if now else None,
            now[0] - old[0] if now else None,
        )
    return found


FIGURES = {"latency_us": "latency (µs)", "G_us_per_KiB": "G (µs/KiB)", "lost_frames": "lost frames"}


def values(matrix: Matrix, figure: str) -> dict[tuple[str, str], float]:
    """Returns one figure of all pairs that have it."""
    found = {pair: getattr(cell, figure) for pair, cell in matrix.items()}
    return {pair: float(value) for pair, value in found.items() if value is not None}


def odd(matrix: Matrix) -> list[Odd]:
    """Returns every odd figure, the oddest first; each loss is odd.

    Uses the median and the median absolute deviation (MAD) of all pairs: a few odd pairs move
    neither.
    """
    return sorted(_odd(matrix), key=lambda one: -(one.score or float("inf")))


def _odd(matrix: Matrix) -> Iterator[Odd]:
    for pair, lost in values(matrix, "lost_frames").items():
        if lost:
            yield Odd(pair, "lost_frames", lost, 0.0, None)
    for figure in ("latency_us", "G_us_per_KiB"):
        found = values(matrix, figure)
        if len(found) < ODD_PAIRS_MIN:
            continue
        middle = median(found.values())
        spread = _SIGMA * median(abs(value - middle) for value in found.values())
        unit = max(spread, _ALIKE * abs(middle) / ODD)
        for pair, value in found.items():
            if unit and abs(value - middle) / unit > ODD:
                yield Odd(pair, figure, value, middle, abs(value - middle) / unit)


def doubtful(matrix: Matrix) -> set[tuple[str, str]]:
    """Returns the pairs whose odd figure may come from other work on a host.

    Other work only makes a trip longer, and may last as long as the measurement of a pair.
    """
    return {one.pair for one in odd(matrix) if one.score is not None}


def joined(first: Outcome, again: Outcome) -> Outcome:
    """Merges measurements of a pair: the least round trip of each size; ignores a failed one."""
    if first.error or again.error:
        return first
    least = dict(_trips(first.figures))
    for size, trip in _trips(again.figures):
        least[size] = min(trip, least.get(size, trip))
    trips = [{"size_bytes": size, "least_us": trip} for size, trip in least.items()]
    figures = first.figures | {"round_trip_minima": trips}
    return replace(first, figures=figures, took_s=first.took_s + again.took_s)


def common(found: Sequence[Odd]) -> str:
    """Returns the host that all odd pairs share, if any; a single pair does not decide."""
    pairs = {one.pair for one in found}
    if len(pairs) < 2:
        return ""
    shared = set.intersection(*(set(pair) for pair in pairs))
    return shared.pop() if len(shared) == 1 else ""
