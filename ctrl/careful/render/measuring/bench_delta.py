"""The difference between careful and traditional in a cell of a benchmark, with its interval.

The values of a round were measured at one moment of the machine. So the bootstrap draws rounds, not
values, and the same rounds for both protocols.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from careful.bench.experiments import PROTOCOLS, TABLES, Cell
from careful.bench.rounds import Result, Results
from careful.measure.statistics.quantiles import t_quantile

LEVEL = 0.95
#: With fewer rounds, all lie on one side of the truth by chance in an eighth of cases or more.
ROUNDS_MIN = 5
_DRAWS = 10000
_SEED = 1

AHEAD, BEHIND, OPEN = "ahead", "behind", "open"


class Delta(NamedTuple):
    """Excess of careful's mean over traditional's, per cent; None if unknown.

    percent: of the means; low, high: its 95 % interval; verdict: AHEAD or BEHIND if the interval is
    on one side of 0, else OPEN.
    """

    percent: float | None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None


def compare(found: Results, cell: Cell) -> Delta:
    """Returns the difference in a cell; none for one node, where neither protocol does anything."""
    results = [found.results[cell, protocol] for protocol in PROTOCOLS]
    traditional, careful = (one.mean for one in results)
    if traditional is None or careful is None or cell.nodes == 1:
        return Delta(None)
    percent = 100 * (careful / traditional - 1)
    rounds = [_rounds(one, cell.nodes) for one in results]
    if len(rounds[0]) != len(rounds[1]) or len(rounds[0]) < ROUNDS_MIN:
        return Delta(percent)
    low, high = _interval(*rounds)
    return Delta(percent, low, high, _verdict(low, high, TABLES[cell.table].more_is_better))


def totals(found: Results, table: str = "") -> Counter[str | None]:
    """Counts the cells of several nodes by verdict; table: counts only this table; "": all."""
    cells = dict.fromkeys(cell for cell, _ in found.results if cell.nodes > 1)
    wanted = (cell for cell in cells if table in ("", cell.table))
    return Counter(compare(found, cell).verdict for cell in wanted)


def _rounds(result: Result, nodes: int) -> npt.NDArray[np.float64]:
    """Returns the mean of each round; none if a run did not end in time."""
    if result.late or len(result.values) % nodes:
        return np.empty(0)
    means: npt.NDArray[np.float64] = np.array(result.values).reshape(-1, nodes).mean(axis=1)
    return means


@lru_cache(maxsize=4)
def _draws(count: int) -> npt.NDArray[np.int64]:
    """Returns the rounds of each draw; always the same, so a stored run gives the same result."""
    return np.random.default_rng(_SEED).integers(count, size=(_DRAWS, count))


def _interval(
    traditional: npt.NDArray[np.float64], careful: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """Returns the interval of the ratio of the means, per cent above 1, by bootstrap.

    The percentiles are widened for few rounds like Student's t (T. Hesterberg, "What teachers
    should know about the bootstrap", 2015, "expanded percentile interval").
    """
    count = len(careful)
    drawn = _draws(count)
    ratios = careful[drawn].sum(axis=1) / traditional[drawn].sum(axis=1)
    t = t_quantile(LEVEL, count - 1)
    tail = NormalDist().cdf(-math.sqrt(count / (count - 1)) * t)
    low, high = np.percentile(ratios, (100 * tail, 100 - 100 * tail))
    return 100 * (float(low) - 1), 100 * (float(high) - 1)


def _verdict(low: float, high: float, more_is_better: bool) -> str:
    if low <= 0 <= high:
        return OPEN
    return AHEAD if (low > 0) == more_is_better else BEHIND
