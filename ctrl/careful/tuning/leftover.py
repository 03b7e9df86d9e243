"""What the process that tuned a path before left in the middle, and how it is gone on with.

Owns that what was decided is in effect, that a search is put back, and that an A/B's change stays,
unverified. Calls ab, trying, path; keeps state.
"""

from __future__ import annotations

from careful.tuning.ab import ours
from careful.tuning.path import Path
from careful.tuning.state import Pair, PathState
from careful.tuning.trying import restore


def take_over(path: Path, state: PathState) -> dict[int, Pair] | None:
    """Put into effect what was decided; what an A/B left unverified, None: there was none."""
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
    left = ours(path, pairs)
    path.settle({index: pair.after for index, pair in left.items()})
    state.unverified |= left
    return left
