"""Takes over a path from a process that was killed.

Puts decided values into effect, undoes an interrupted search, and keeps the changes of an
interrupted A/B as unverified.
"""

from __future__ import annotations

from careful.tuning.path import Path
from careful.tuning.search.search import restore
from careful.tuning.state import Pair, PathState
from careful.tuning.trial.ab import ours


def take_over(path: Path, state: PathState) -> dict[int, Pair] | None:
    """Puts decided values into effect. Returns the changes of an interrupted A/B, or None."""
    plans, pinned = path.in_effect(), path.by_hand()
    lost = {
        index: plan
        for index, plan in state.plans.items()
        if index not in pinned and plan != plans[index]
    }
    if lost:
        path.settle(lost)
    if state.put_back:
        restore(path, state)
    pairs, state.on_trial = state.on_trial, {}
    if not pairs:
        return None
    resumed = ours(path, pairs)
    path.settle({index: pair.after for index, pair in resumed.items()})
    state.unverified |= resumed
    return resumed
