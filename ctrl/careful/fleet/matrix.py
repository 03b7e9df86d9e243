"""Measurements of all pairs of hosts: latency, G and losses, and the rule for odd pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from careful.fleet.hosts import Host
from careful.fleet.running import Outcome, number, tables

#: A figure is odd if its modified z-score is beyond ODD (Iglewicz and Hoaglin, How to Detect and
#: Handle Outliers, 1993), among at least ODD_PAIRS_MIN pairs.
ODD, ODD_PAIRS_MIN = 3.5, 4
#: Standard deviation of a normal distribution, relative to its MAD.
_SIGMA = 1.4826
#: A difference below this part of the median is never odd.
_SIMILAR = 0.05


@dataclass(frozen=True)
class Cell:
    """One ordered pair.

    Attributes:
        latency_us: half of the least round-trip time of a small message; None: unknown.
        G_us_per_KiB: of all stages of the path together; None: unknown.
        lost_frames: lost on the way to the second host during all measurements; None: unknown.
        sent_frames: frames sent meanwhile.
        error: why nothing was measured, or "".
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
        median: of all pairs.
        score: deviations from the median; None for losses: a single lost frame is odd.
    """

    pair: tuple[str, str]
    figure: str
    value: float
    median: float
    score: float | None


#: From host, to host -> the pair's figures.
Matrix = dict[tuple[str, str], Cell]


def _trips(figures: Mapping[str, object]) -> list[tuple[float, float]]:
    """Returns (size in bytes, least round-trip time in µs), by size."""
    pairs = [
        (number(one, "size_bytes"), number(one, "least_us"))
        for one in tables(figures.get("round_trip_minima"))
    ]
    return sorted((size, least) for size, least in pairs if size is not None and least is not None)


def _latency_us(figures: Mapping[str, object]) -> float | None:
    trips = _trips(figures)
    return trips[0][1] / 2 if trips else None


def _G_us_per_KiB(figures: Mapping[str, object]) -> float | None:
    """Returns the cost of a byte in the least round-trip time; one way, since answers are empty.

    The median of the slopes between all sizes (Theil and Sen): a disturbed size hardly changes it.
    """
    trips = _trips(figures)
    slopes = [
        (larger_us - smaller_us) / (size - less) * 1024
        for (less, smaller_us), (size, larger_us) in combinations(trips, 2)
        if size > less
    ]
    slope = median(slopes) if slopes else -1.0
    return slope if slope >= 0 else None  # no line fits a path that holds frames back


def _counts(status: Outcome, target: Host, address: str) -> tuple[int, int] | None:
    """Returns the frames that a host sent to another and lost; None: unknown."""
    for instance in tables(status.figures.get("instances")):
        for peer in tables(instance.get("peers")):
            if any(peer.get(key) in (target.address, address) for key in ("address", "node")):
                sent, lost = number(peer, "tx_frames"), number(peer, "lost_there_frames")
                return int(sent or 0), int(lost or 0)
    return None


def matrix_of(
    hosts: Sequence[Host],
    measured: Sequence[Outcome],
    before: Sequence[Outcome],
    after: Sequence[Outcome],
) -> Matrix:
    """Returns the matrix.

    Args:
        hosts: all hosts.
        measured: `measure blackbox` of each pair; the job's name is the target.
        before: `status` of each host, before the measurements.
        after: `status` of each host, after them.
    """
    by_name = {one.name: one for one in hosts}
    status_before = {one.host: one for one in before}
    status_after = {one.host: one for one in after}
    matrix: Matrix = {}
    for one in measured:
        pair = (one.host, one.job.name)
        if one.error:
            matrix[pair] = Cell(error=one.error)
            continue
        target = by_name[one.job.name]
        inputs = one.figures.get("inputs")
        address = str(inputs.get("address", "")) if isinstance(inputs, dict) else ""
        counts = _counts(status_after[one.host], target, address)
        counts_before = _counts(status_before[one.host], target, address) or (0, 0)  # no session
        if status_before[one.host].error:  # losses from before the measurements would count
            counts = None
        if counts and counts[0] < counts_before[0]:  # carefuld was restarted
            counts_before = (0, 0)
        matrix[pair] = Cell(
            _latency_us(one.figures),
            _G_us_per_KiB(one.figures),
            max(0, counts[1] - counts_before[1]) if counts else None,
            counts[0] - counts_before[0] if counts else None,
        )
    return matrix


FIGURES = {"latency_us": "latency (µs)", "G_us_per_KiB": "G (µs/KiB)", "lost_frames": "lost frames"}


def values(matrix: Matrix, figure: str) -> dict[tuple[str, str], float]:
    """Returns one figure of all pairs that have it."""
    by_pair = {pair: getattr(cell, figure) for pair, cell in matrix.items()}
    return {pair: float(value) for pair, value in by_pair.items() if value is not None}


def odd(matrix: Matrix) -> list[Odd]:
    """Returns every odd figure, the oddest first; each loss is odd.

    Compares with the median and the median absolute deviation (MAD) of all pairs, which a few odd
    pairs hardly change.
    """
    return sorted(_odd(matrix), key=lambda one: -(one.score or float("inf")))


def _odd(matrix: Matrix) -> Iterator[Odd]:
    for pair, lost in values(matrix, "lost_frames").items():
        if lost:
            yield Odd(pair, "lost_frames", lost, 0.0, None)
    for figure in ("latency_us", "G_us_per_KiB"):
        by_pair = values(matrix, figure)
        if len(by_pair) < ODD_PAIRS_MIN:
            continue
        center = median(by_pair.values())
        spread = _SIGMA * median(abs(value - center) for value in by_pair.values())
        deviation = max(spread, _SIMILAR * abs(center) / ODD)
        for pair, value in by_pair.items():
            if deviation and abs(value - center) / deviation > ODD:
                yield Odd(pair, figure, value, center, abs(value - center) / deviation)


def doubtful(matrix: Matrix) -> set[tuple[str, str]]:
    """Returns the pairs whose odd figure may come from other work on a host, which makes a trip
    longer and may last as long as the measurement of a pair.
    """
    return {one.pair for one in odd(matrix) if one.score is not None}


def joined(first: Outcome, repeated: Outcome) -> Outcome:
    """Merges two measurements of a pair: the least time of each size; ignores a failed one."""
    if first.error or repeated.error:
        return first
    least = dict(_trips(first.figures))
    for size, least_us in _trips(repeated.figures):
        least[size] = min(least_us, least.get(size, least_us))
    trips = [{"size_bytes": size, "least_us": least_us} for size, least_us in least.items()]
    figures = first.figures | {"round_trip_minima": trips}
    return replace(first, figures=figures, took_s=first.took_s + repeated.took_s)


def shared_host(odds: Sequence[Odd]) -> str:
    """Returns the host that all odd pairs share, or ""; a single pair does not decide."""
    pairs = {one.pair for one in odds}
    if len(pairs) < 2:
        return ""
    shared = set.intersection(*(set(pair) for pair in pairs))
    return shared.pop() if len(shared) == 1 else ""
