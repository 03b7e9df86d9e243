"""An A/B of changes on live messages: the values before and after a change take turns.

Owns when the A/B ends and which changes held. policy.py acts on the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from careful.jsonout import Json
from careful.tuning.path import Live, Path
from careful.tuning.settings import is_stored
from careful.tuning.state import Pair
from careful.tuning.trial.alternating import Alternating
from careful.tuning.verify import MEASURES, MEASURES_STORED, Trial, Verdict

#: Longest A/B, seconds.
TRIAL_S_MAX = 600.0


@dataclass
class Outcome:
    """The changes of an A/B by their result: held (faster), not held, undecided."""

    held: dict[int, Pair] = field(default_factory=dict)
    undone: dict[int, Pair] = field(default_factory=dict)
    undecided: dict[int, Pair] = field(default_factory=dict)
    verdicts: dict[int, Verdict] = field(default_factory=dict)

    def summary(self) -> dict[int, Json]:
        return {
            item: verdict.as_dict(MEASURES_STORED if is_stored(item) else MEASURES)
            for item, verdict in self.verdicts.items()
        }


class AB:
    """An A/B under way.

    Args:
        pairs: the changes, by item.
        trials: messages of earlier A/Bs of these changes, to which this A/B adds its own.
        is_first: this is the first A/B of these changes, so the values before are in effect.
        message_gap_s: usual time between two messages that measure an item, seconds.
    """

    def __init__(
        self,
        path: Path,
        pairs: dict[int, Pair],
        trials: dict[int, Trial],
        now: float,
        is_first: bool,
        message_gap_s: Mapping[int, float] | None = None,
    ) -> None:
        self.pairs, self.is_first = pairs, is_first
        self._trials, self._began = trials, now
        others = {item: pair.after if is_first else pair.before for item, pair in pairs.items()}
        self._turns = Alternating(
            path, others, now, swapped=not is_first, message_gap_s=message_gap_s
        )

    def collect(self, live: Live, now: float) -> None:
        trials = {item: self._trials.setdefault(item, Trial()) for item in self.pairs}
        self._turns.collect(trials, live, now)

    def skip(self, live: Live) -> None:
        self._turns.skip(live)

    def end_reason(self, now: float) -> str | None:
        """Returns None while the A/B goes on, "" when a change has a verdict, else why it ends."""
        if any(self._trials[item].has_verdict for item in self.pairs):
            return ""
        if self._is_late(now):
            return f"the A/B took {TRIAL_S_MAX:.0f} s"
        if all(self.is_quiet(item, now) for item in self.pairs):
            return "too few live messages"
        return None

    def is_quiet(self, item: int, now: float) -> bool:
        return self._turns.is_quiet(item, now)

    def _is_late(self, now: float) -> bool:
        return now - self._began > TRIAL_S_MAX

    def flip(self) -> bool:
        return self._turns.flip()

    def outcome(self, pairs: Mapping[int, Pair], now: float) -> Outcome:
        outcome = Outcome()
        for item, pair in pairs.items():
            verdict = outcome.verdicts[item] = self._trials.setdefault(item, Trial()).verdict()
            if verdict.what == "held":
                outcome.held[item] = pair
            elif verdict.what == "not held" or (self._is_late(now) and verdict.gain is not None):
                outcome.undone[item] = pair
            else:
                outcome.undecided[item] = pair
        return outcome


def ours(path: Path, pairs: Mapping[int, Pair]) -> dict[int, Pair]:
    """Returns the changes that nobody has since overridden by hand."""
    values, pinned = path.in_effect(), path.by_hand()
    return {
        item: pair
        for item, pair in pairs.items()
        if item not in pinned and values[item] in (pair.before, pair.after)
    }
