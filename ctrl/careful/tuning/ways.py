"""Ways to send the messages of a class that are worth a try where no model says which is best.

Owns the candidates, and how one of them is found on live messages: successive halving. Every way
is compared with what is in effect, in turn with it, so what the path does meanwhile meets both.
The better half stays for another, longer round, until one is left. What is surely slower goes at
once. Which of them looks best is not yet proof that it is better: that is the A/B's that follows.
Pure. Calls model and verify.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from careful.plan import Limits, Plan
from careful.tuning.items import NET_TX, Kick, Value, class_bytes
from careful.tuning.verify import BLOCKS_MIN, MESSAGES_MIN, Trial

#: Fragments are halved so often at most, and are no smaller than this, bytes.
HALVINGS, FRAGMENT_BYTES_MIN = 3, 512
#: Least kicks that are tried beside the one in effect: each frame by itself, and some at a time.
KICKS_BYTES = (1, 4096)
#: Messages of each arm in the first round; each later round needs twice as many.
ROUND_MESSAGES = 120
#: The best way must look faster than what is in effect by this share.
GAIN_MIN = 0.02


def ways(
    index: int, now: Sequence[Value], limits: Limits, but: frozenset[int]
) -> list[dict[int, Value]]:
    """Candidates for a class's messages: what each changes.

    Fragments as large as frames are, halves, quarters and eighths, by each of the least kicks.
    Of those that make no difference to a message of the class one is listed; what makes none to
    what is in effect is not.

    Args:
        index: the class.
        now: what is in effect, of all items.
        limits: payload of a frame.
        but: items that are not ours to change.
    """
    nbytes, plan, kick = class_bytes(index), now[index], now[NET_TX + index]
    assert isinstance(plan, Plan)
    assert isinstance(kick, Kick)
    kicks = [kick] + [Kick(one) for one in KICKS_BYTES] * (NET_TX + index not in but)
    plans = [plan] + _plans(nbytes, limits) * (index not in but)
    seen = {effect(plan, kick, nbytes, limits)}
    found = []
    for one in plans:
        for least in kicks:
            made = effect(one, least, nbytes, limits)
            if made not in seen:
                seen.add(made)
                changed: dict[int, Value] = {index: one, NET_TX + index: least}
                found.append({item: value for item, value in changed.items() if value != now[item]})
    return found


def _plans(nbytes: int, limits: Limits) -> list[Plan]:
    whole = Plan.fixed(nbytes).sizes(nbytes, limits)[0]
    sizes = [math.ceil(whole / 2**times) for times in range(HALVINGS + 1)]
    return [Plan.fixed(size) for size in sizes if size >= min(FRAGMENT_BYTES_MIN, whole)]


def effect(plan: Plan, kick: Kick, nbytes: int, limits: Limits) -> tuple[object, int]:
    """What a plan and a least kick make of a message: its fragments, and frames of a kick.

    Two that make the same of it are one way.
    """
    sizes = plan.sizes(nbytes, limits)
    frames = math.ceil(kick.net_tx_bytes / sizes[0]) if sizes else 1
    return tuple(sizes), max(1, min(frames, len(sizes)))


@dataclass
class Way:
    """One of them, and what messages took with it (B) and with what is in effect (A)."""

    values: Mapping[int, Value]
    trial: Trial = field(default_factory=Trial)

    @property
    def gain(self) -> float:
        """The share of its latency that a message seems to save; -1 below MESSAGES_MIN messages."""
        if self.trial.count < MESSAGES_MIN:
            return -1.0
        return 1 - self.trial.b.middle().value / self.trial.a.middle().value


class Search:
    """A search for the best way to send a class's messages.

    Attributes:
        left: the ways that may be the best.
        ways_count: the number of ways at the beginning.
        over: whether no more messages are needed.
    """

    def __init__(self, found: Sequence[Mapping[int, Value]]) -> None:
        self.left = [Way(values) for values in found]
        self.ways_count = len(found)
        self.over = not found
        self._at, self._need = 0, ROUND_MESSAGES

    @property
    def way(self) -> Way:
        """Whose turn it is."""
        return self.left[self._at]

    def look(self, late: bool = False) -> bool:
        """Whether the turn is another's, or the search is over, after the messages that came.

        late: the turn has had its share of the time, so the least that says something is enough.
        """
        trial = self.way.trial
        needed = min(self._need, MESSAGES_MIN) if late else self._need
        if trial.is_decided and trial.verdict().what == "not held":
            del self.left[self._at]
        elif trial.count >= needed and len(trial.b.blocks) >= BLOCKS_MIN:
            self._at += 1
        else:
            return False
        if self._at >= len(self.left):
            self._end_round()
        return True

    def _end_round(self) -> None:
        self._at, self._need = 0, 2 * self._need
        self.left.sort(key=lambda one: -one.gain)
        self.left = self.left[: math.ceil(len(self.left) / 2)]
        self.over = len(self.left) <= 1

    @property
    def judged(self) -> bool:
        """Reports whether any way had messages enough to say something."""
        return not self.left or any(one.trial.count >= MESSAGES_MIN for one in self.left)

    def best(self) -> Way | None:
        """What looks best so far, if it looks better than what is in effect."""
        found = max(self.left, key=lambda one: one.gain, default=None)
        return found if found and found.gain >= GAIN_MIN else None
