"""Alternates two versions of a path's settings and collects the latencies of live messages.

Owns which messages count for which version, and when an item no longer has messages.
"""

from __future__ import annotations

from collections.abc import Mapping

from careful.tuning.path import Live, Path
from careful.tuning.settings import Value, measured_item
from careful.tuning.verify import Counts, Trial

#: An item is quiet after QUIET_S without a message or, if longer, after four times the usual gap
#: (at most QUIET_S_MAX before the first message), seconds.
QUIET_S, QUIET_S_MAX = 2.0, 60.0


class Alternating:
    """Alternates the values in effect with others.

    others: the other values; swapped: `others` are the first version, and the values in effect the
    second; message_gap_s: usual time between two messages that measure an item, seconds.
    """

    def __init__(
        self,
        path: Path,
        others: Mapping[int, Value],
        now: float,
        *,
        swapped: bool = False,
        message_gap_s: Mapping[int, float] | None = None,
    ) -> None:
        self._path, self.began = path, now
        self._message_gap_s = message_gap_s or {}
        active, spare = path.offer(others)
        self.versions = (spare, active) if swapped else (active, spare)
        self._seen = path.live()
        self._count: dict[int, int] = {}
        self._last: dict[int, float] = {}

    def collect(self, trials: Mapping[int, Trial], live: Live, now: float) -> None:
        for item, trial in trials.items():
            for version, arm in zip(self.versions, (trial.a, trial.b), strict=True):
                key = (measured_item(item), version)
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

    def is_quiet(self, item: int, now: float) -> bool:
        """Reports whether an item has had no message for much longer than usual."""
        count = self._count.get(item, 0)
        if count:
            patience_s = 4 * (now - self.began) / count
        else:
            patience_s = min(4 * self._message_gap_s.get(item, 0.0), QUIET_S_MAX)
        return now - self._last.get(item, self.began) > max(QUIET_S, patience_s)

    def renew(self, others: Mapping[int, Value]) -> None:
        self.versions = self._path.offer(others)
        self._seen = self._path.live()

    def flip(self) -> bool:
        return self._path.flip()
