"""An A/B of changes on live messages: what was before beside what is after, in turn.

Owns when it ends, and which changes held. What becomes of them then is decide.py's.
Calls alternating, verify.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from careful.jsonout import Json
from careful.tuning.alternating import Alternating
from careful.tuning.items import is_stored
from careful.tuning.path import Live, Path
from careful.tuning.state import Pair
from careful.tuning.verify import MEASURES, MEASURES_STORED, Trial, Verdict

#: Longest A/B, seconds.
TRIAL_S_MAX = 600.0


@dataclass
class Outcome:
    """What is known of some changes: those that held, that did not, and the others."""

    kept: dict[int, Pair] = field(default_factory=dict)
    undone: dict[int, Pair] = field(default_factory=dict)
    open: dict[int, Pair] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    def said(self) -> dict[int, Json]:
        """The verdicts, for JSON."""
        return {
            item: one.as_dict(MEASURES_STORED if is_stored(item) else MEASURES)
            for item, one in self.verdicts.items()
        }


class AB:
    """An A/B under way.

    Args:
        path: where.
        pairs: the changes, by item.
        trials: what is known of them from A/Bs before; added to.
        now: seconds.
        fresh: what is in effect is what was before, and no A/B was made of them yet.
        apart_s: between two messages that tell of an item, as they came before.
    """

    def __init__(
        self,
        path: Path,
        pairs: dict[int, Pair],
        trials: dict[int, Trial],
        now: float,
        fresh: bool,
        apart_s: Mapping[int, float] | None = None,
    ) -> None:
        self.pairs, self.fresh = pairs, fresh
        self._trials, self._began = trials, now
        beside = {item: pair.after if fresh else pair.before for item, pair in pairs.items()}
        self._turns = Alternating(path, beside, now, swapped=not fresh, apart_s=apart_s)

    def collect(self, live: Live, now: float) -> None:
        """What came since the last flip, into the arms."""
        trials = {item: self._trials.setdefault(item, Trial()) for item in self.pairs}
        self._turns.collect(trials, live, now)

    def skip(self, live: Live) -> None:
        """What came since the last flip counts for none."""
        self._turns.skip(live)

    def ended(self, now: float) -> str | None:
        """Why it is over, "" where something is decided; None: it goes on."""
        if any(self._trials[item].is_decided for item in self.pairs):
            return ""
        if self._is_late(now):
            return f"the A/B took {TRIAL_S_MAX:.0f} s"
        if all(self.quiet(item, now) for item in self.pairs):
            return "too few live messages"
        return None

    def quiet(self, item: int, now: float) -> bool:
        """Reports whether the messages that tell of a change have ceased."""
        return self._turns.quiet(item, now)

    def _is_late(self, now: float) -> bool:
        return now - self._began > TRIAL_S_MAX

    def flip(self) -> bool:
        """The other's turn; False: somebody changed the settings."""
        return self._turns.flip()

    def outcome(self, pairs: Mapping[int, Pair], now: float) -> Outcome:
        """Of some of the changes, as it stands."""
        found = Outcome()
        for item, pair in pairs.items():
            one = found.verdicts[item] = self._trials.setdefault(item, Trial()).verdict()
            if one.what == "held":
                found.kept[item] = pair
            elif one.what == "not held" or (self._is_late(now) and one.gain is not None):
                found.undone[item] = pair
            else:
                found.open[item] = pair
        return found


def ours(path: Path, pairs: Mapping[int, Pair]) -> dict[int, Pair]:
    """Those of some changes that nobody has set by hand since."""
    values, pinned = path.in_effect(), path.by_hand()
    return {
        item: pair
        for item, pair in pairs.items()
        if item not in pinned and values[item] in (pair.before, pair.after)
    }
