"""All pairs of hosts, measured: latency, G and losses, and the pairs that do not fit in.

Owns which figure of a pair is which, and the rule for the odd one. Calls fleet/running.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from careful.fleet.hosts import Host
from careful.fleet.running import Outcome, number, tables

#: A modified z-score beyond this is odd (Iglewicz and Hoaglin, How to Detect and Handle
#: Outliers, 1993), of this many pairs at least.
ODD, ODD_PAIRS_MIN = 3.5, 4
#: MAD to standard deviation, of a normal distribution.
_SIGMA = 1.4826
#: Pairs that are alike may differ by so much of the median, however alike the others are.
_ALIKE = 0.05


@dataclass(frozen=True)
class Cell:
    """One ordered pair.

    Attributes:
        latency_us: half of the least round trip of a small message; None: not told.
        G_us_per_KiB: of all stages of the way together; None: not told.
        lost_frames: on the way there while all were measured; None: not told.
        sent_frames: of so many.
        error: why nothing was measured; "".
    """

    latency_us: float | None = None
    G_us_per_KiB: float | None = None
    lost_frames: int | None = None
    sent_frames: int | None = None
    error: str = ""


@dataclass(frozen=True)
class Odd:
    """A figure of a pair that does not fit in with the others.

    Attributes:
        pair: from, to.
        figure: latency_us, G_us_per_KiB or lost_frames.
        value: of this pair.
        median: of all.
        score: deviations from the median; None of a loss: one frame is odd.
    """

    pair: tuple[str, str]
    figure: str
    value: float
    median: float
    score: float | None


#: From host, to host -> what was found.
Matrix = dict[tuple[str, str], Cell]


def _trips(found: Mapping[str, object]) -> list[tuple[float, float]]:
    """Sizes, bytes, and the least round trip of each, µs."""
    pairs = [
        (number(one, "size_bytes"), number(one, "least_us"))
        for one in tables(found.get("round_trip_minima"))
    ]
    return sorted((size, least) for size, least in pairs if size is not None and least is not None)


def _latency_us(found: Mapping[str, object]) -> float | None:
    """Half of the least round trip of the smallest size."""
    trips = _trips(found)
    return trips[0][1] / 2 if trips else None


def _G_us_per_KiB(found: Mapping[str, object]) -> float | None:
    """What a byte adds to the least round trip, one way, for answers are empty.

    The median of the slopes between all sizes (Theil and Sen): a disturbed size moves it little.
    """
    trips = _trips(found)
    slopes = [
        (there - here) / (size - less) * 1024
        for (less, here), (size, there) in combinations(trips, 2)
        if size > less
    ]
    slope = median(slopes) if slopes else -1.0
    return slope if slope >= 0 else None  # a path that holds frames back has no line


def _counts(status: Outcome, there: Host, address: str) -> tuple[int, int] | None:
    """Frames that a host sent to another, and of them lost; None: it does not say."""
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
    """The matrix.

    Args:
        hosts: all.
        measured: `measure blackbox` of each pair; the job's name is where to.
        before: `status` of each host, before all of them.
        after: the same, after them.
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
        if first[one.host].error:  # what was lost earlier is in what is lost now
            now = None
        if now and now[0] < old[0]:  # carefuld was started anew
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
    """One figure of all pairs that have it."""
    found = {pair: getattr(cell, figure) for pair, cell in matrix.items()}
    return {pair: float(value) for pair, value in found.items() if value is not None}


def odd(matrix: Matrix) -> list[Odd]:
    """Every figure that does not fit in, the oddest first; each loss is one.

    The median and the median absolute deviation (MAD) of all pairs: neither moves by a few odd
    ones.
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
    """The pairs with an odd figure that something else on a host may have caused.

    Other work only ever makes a trip longer, and may do so all the while that a pair is measured.
    """
    return {one.pair for one in odd(matrix) if one.score is not None}


def joined(first: Outcome, again: Outcome) -> Outcome:
    """Two measurements of a pair as one: the least round trip of each size.

    One that failed says nothing of the other.
    """
    if first.error or again.error:
        return first
    least = dict(_trips(first.figures))
    for size, trip in _trips(again.figures):
        least[size] = min(trip, least.get(size, trip))
    trips = [{"size_bytes": size, "least_us": trip} for size, trip in least.items()]
    figures = first.figures | {"round_trip_minima": trips}
    return replace(first, figures=figures, took_s=first.took_s + again.took_s)


def common(found: Sequence[Odd]) -> str:
    """The host that all odd pairs share, if one does; with one pair nobody can say which."""
    pairs = {one.pair for one in found}
    if len(pairs) < 2:
        return ""
    shared = set.intersection(*(set(pair) for pair in pairs))
    return shared.pop() if len(shared) == 1 else ""
