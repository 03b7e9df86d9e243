"""Two versions of a path's settings that take turns, and what live messages took with each.

Owns which messages count for which of the two, and when an item's have ceased.
Calls verify, and the path that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from careful.tuning.items import Value, told_by
from careful.tuning.path import Live, Path
from careful.tuning.verify import Counts, Trial

#: Messages have ceased after so long without, or four times what one takes to come, seconds; of
#: which so much is believed before any came.
QUIET_S, QUIET_S_MAX = 2.0, 60.0


class Alternating:
    """Values beside those in effect, whose turn is next.

    Args:
        path: of both.
        beside: the values.
        now: seconds.
        swapped: those in effect are the second of the two, and `beside` the first.
        apart_s: between two messages that tell of an item, as they came before.
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
        """What came since the last flip, into the arms of each item's trial."""
        for item, trial in trials.items():
            for version, arm in zip(self.versions, (trial.a, trial.b), strict=True):
                key = (told_by(item), version)
                if (total := live.get(key)) is None:  # none of its messages came yet
                    continue
                block = total.since(self._seen.get(key, Counts()))
                arm.add(block)
                if block.count:
                    self._count[item] = self._count.get(item, 0) + block.count
                    self._last[item] = now
        self._seen = live

    def skip(self, live: Live) -> None:
        """What came since the last flip counts for none."""
        self._seen = live

    def quiet(self, item: int, now: float) -> bool:
        """Reports whether an item has had no message for longer than its messages are apart."""
        count = self._count.get(item, 0)
        if count:
            patience_s = 4 * (now - self.began) / count
        else:
            patience_s = min(4 * self._apart_s.get(item, 0.0), QUIET_S_MAX)
        return now - self._last.get(item, self.began) > max(QUIET_S, patience_s)

    def renew(self, beside: Mapping[int, Value]) -> None:
        """Put other values beside those in effect, which are the first of the two."""
        self.versions = self._path.offer(beside)
        self._seen = self._path.live()

    def flip(self) -> bool:
        """The other's turn; False: somebody changed the settings."""
        return self._path.flip()
