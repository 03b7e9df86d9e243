"""Ways to send the messages of a class that are worth a try if no model says which is best.

Owns the candidates and the search on live messages: successive halving. Every way alternates with
the values in effect, so both meet the same load. The better half stays for a longer round, until
one way is left; a way that is surely slower leaves at once. The way that looks best still needs an
A/B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from careful.plan import Limits, Plan
from careful.tuning.settings import NET_TX, Kick, Value, class_bytes
from careful.tuning.verify import BLOCKS_MIN, MESSAGES_MIN, Trial

#: Most halvings of a fragment, and the least fragment, bytes.
HALVINGS, FRAGMENT_BYTES_MIN = 3, 512
#: Least kicks to try besides the one in effect: each frame alone, and some together.
KICKS_BYTES = (1, 4096)
#: Messages per arm in the first round; each later round needs twice as many.
ROUND_MESSAGES = 120
#: Least apparent gain of the best way, as a share of the latency.
GAIN_MIN = 0.02


def ways(
    index: int, now: Sequence[Value], limits: Limits, but: frozenset[int]
) -> list[dict[int, Value]]:
    """Returns the candidates for a class's messages: the values that each changes.

    Combines fragments as large as frames, halves, quarters and eighths with each of the least
    kicks. Lists one of several candidates with the same effect, and none with the effect of the
    values now.

    Args:
        index: the class.
        now: values in effect, of all items.
        limits: payload of a frame.
        but: items that the controller must not change.
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
    """Returns a message's fragments, and frames per kick, under a plan and a least kick.

    Two candidates with the same effect count as one way.
    """
    sizes = plan.sizes(nbytes, limits)
    frames = math.ceil(kick.net_tx_bytes / sizes[0]) if sizes else 1
    return tuple(sizes), max(1, min(frames, len(sizes)))


@dataclass
class Way:
    """A way; its messages are arm B of the trial, those with the values in effect arm A."""

    values: Mapping[int, Value]
    trial: Trial = field(default_factory=Trial)

    @property
    def gain(self) -> float:
        """The share of latency that a message seems to save; -1 below MESSAGES_MIN messages."""
        if self.trial.count < MESSAGES_MIN:
            return -1.0
        return 1 - self.trial.b.middle().value / self.trial.a.middle().value


class Search:
    """A search for the best way to send a class's messages.

    Attributes:
        left: the ways that may be the best.
        ways_count: the number of ways at the beginning.
        over: no more messages are needed.
    """

    def __init__(self, found: Sequence[Mapping[int, Value]]) -> None:
        self.left = [Way(values) for values in found]
        self.ways_count = len(found)
        self.over = not found
        self._at, self._need = 0, ROUND_MESSAGES

    @property
    def way(self) -> Way:
        return self.left[self._at]

    def look(self, late: bool = False) -> bool:
        """Counts new messages; reports whether another way has its turn or the search is over.

        late: the turn has used its time, so the least messages for a verdict are enough.
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
        return not self.left or any(one.trial.count >= MESSAGES_MIN for one in self.left)

    def best(self) -> Way | None:
        found = max(self.left, key=lambda one: one.gain, default=None)
        return found if found and found.gain >= GAIN_MIN else None
