"""Alternates two versions of a path's settings and collects the latencies of live messages.

Owns which messages count for which version, and when an item's messages have ceased.
"""

from __future__ import annotations

from collections.abc import Mapping

from careful.tuning.path import Live, Path
from careful.tuning.settings import Value, told_by
from careful.tuning.verify import Counts, Trial

#: Messages have ceased after QUIET_S, or after four times their usual distance if longer, seconds.
#: Before the first message the latter is at most QUIET_S_MAX.
QUIET_S, QUIET_S_MAX = 2.0, 60.0


class Alternating:
    """Alternates the values in effect with others.

    Args:
        path: the path.
        beside: the other values.
        now: seconds.
        swapped: the values in effect are the second version and `beside` the first.
        apart_s: usual time between two messages that measure an item, seconds.
    """

    def __init__(
        self,
        path: Path,
        beside: Mapping[int, Value],
        now: float,
        *,
        swapped: bool = False,
        apart_s: Mapping[int, float] | None = None,
    ) -> None:
        self._path, self.began = path, now
        self._apart_s = apart_s or {}
        active, other = path.offer(beside)
        self.versions = (other, active) if swapped else (active, other)
        self._seen = path.live()
        self._count: dict[int, int] = {}
        self._last: dict[int, float] = {}

    def collect(self, trials: Mapping[int, Trial], live: Live, now: float) -> None:
        for item, trial in trials.items():
            for version, arm in zip(self.versions, (trial.a, trial.b), strict=True):
                key = (told_by(item), version)
                if (total := live.get(key)) is None:  # no message of the item yet
                    continue
                block = total.since(self._seen.get(key, Counts()))
                arm.add(block)
                if block.count:
                    self._count[item] = self._count.get(item, 0) + block.count
                    self._last[item] = now
        self._seen = live

    def skip(self, live: Live) -> None:
        self._seen = live

    def quiet(self, item: int, now: float) -> bool:
        """Reports whether an item has had no message for much longer than usual."""
        count = self._count.get(item, 0)
        if count:
            patience_s = 4 * (now - self.began) / count
        else:
            patience_s = min(4 * self._apart_s.get(item, 0.0), QUIET_S_MAX)
        return now - self._last.get(item, self.began) > max(QUIET_S, patience_s)

    def renew(self, beside: Mapping[int, Value]) -> None:
        self.versions = self._path.offer(beside)
        self._seen = self._path.live()

    def flip(self) -> bool:
        return self._path.flip()
