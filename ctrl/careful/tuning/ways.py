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

from careful.model.stages import Limits
from careful.model.tunemap import TunePlan
from careful.tuning.items import NET_TX, Kick, Value, class_bytes
from careful.tuning.verify import BLOCKS_MIN, MESSAGES_MIN, Trial

#: Fragments are halved so often at most, and are no smaller than this, bytes.
HALVINGS, FRAGMENT_BYTES_MIN = 3, 512
#: Least kicks that are tried beside the one in effect: each frame by itself, and some at a time.
KICKS_BYTES = (1, 4096)
#: Messages of each arm in the first round; in all of each later one, twice as many. Of reads
#: there are few, and what they gain where a source has become slow is no matter of some percent;
#: of ramps it is one.
ROUND_MESSAGES = {"ways": 120, "reads": MESSAGES_MIN, "ramps": 480}
#: The best of them must look faster than what is in effect by this share; a ramp surely, and by
#: nearly as much as the model had to promise.
GAIN_MIN = {"ways": 0.02, "reads": 0.02, "ramps": 0.04}
#: Of reads, one that is surely faster by this share is taken at once: a slow source is answered
#: before all were tried. Messages of each arm before one may be sure; how sure it is, for it is
#: looked at after each of them, and where all were tried.
READS_GAIN_MIN, SURE_MESSAGES, SURE_LEVEL, BEST_LEVEL = 0.1, 6, 0.999, 0.99


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
    assert isinstance(plan, TunePlan)
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


def reads(
    index: int, now: Sequence[Value], limits: Limits, but: frozenset[int]
) -> list[dict[int, Value]]:
    """Candidates where the plan is right and the messages' source may be slow: other least kicks.

    Of a file no less is read than a kick takes (datapath/message/out.c). From the whole message
    by halves down to a frame; arguments as of ways().
    """
    nbytes, plan, kick = class_bytes(index), now[index], now[NET_TX + index]
    assert isinstance(plan, TunePlan)
    assert isinstance(kick, Kick)
    if NET_TX + index in but:
        return []
    seen, least = {effect(plan, kick, nbytes, limits)}, nbytes
    found: list[dict[int, Value]] = []
    while least >= min(FRAGMENT_BYTES_MIN, nbytes):
        made = effect(plan, Kick(least), nbytes, limits)
        if made not in seen:
            seen.add(made)
            found.append({NET_TX + index: Kick(least)})
        least //= 2
    middle = (len(found) - 1) / 2
    return [found[k] for k in sorted(range(len(found)), key=lambda k: abs(k - middle))]


def _plans(nbytes: int, limits: Limits) -> list[TunePlan]:
    whole = TunePlan.fixed(nbytes).sizes(nbytes, limits)[0]
    sizes = [math.ceil(whole / 2**times) for times in range(HALVINGS + 1)]
    return [TunePlan.fixed(size) for size in sizes if size >= min(FRAGMENT_BYTES_MIN, whole)]


def effect(plan: TunePlan, kick: Kick, nbytes: int, limits: Limits) -> tuple[object, int]:
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
    least: int = MESSAGES_MIN  # messages of each arm to judge by

    @property
    def gain(self) -> float:
        """How much less a message seems to take, as a share; -1 below the least to judge by."""
        if self.trial.count < self.least:
            return -1.0
        return 1 - self.trial.b.middle().value / self.trial.a.middle().value

    def sure(self, level: float) -> int:
        """1: a message surely takes less with it, -1: more, 0: nobody knows yet."""
        a, b = self.trial.a, self.trial.b
        if self.trial.count < self.least or min(len(a.blocks), len(b.blocks)) < BLOCKS_MIN:
            return 0
        gain = a.middle() - b.middle()
        if abs(gain.value) <= gain.half_at(level):
            return 0
        return 1 if gain.value > 0 else -1


class Search:
    """For the best way to send a class's messages.

    Attributes:
        left: the ways that may be it.
        ways_count: how many there were.
        kind: "ways", "reads" or "ramps".
        over: whether no more messages are needed.
        early: whether it ended with ways untried that may be better yet.
    """

    def __init__(self, found: Sequence[Mapping[int, Value]], kind: str = "ways") -> None:
        self.kind, of_reads = kind, kind == "reads"
        least = SURE_MESSAGES if of_reads else MESSAGES_MIN
        self.left = [Way(values, least=least) for values in found]
        self.ways_count = len(found)
        self.over = not found
        self.early = False
        self._of_reads = of_reads
        self._at, self._need = 0, ROUND_MESSAGES[kind]

    @property
    def way(self) -> Way:
        """Whose turn it is."""
        return self.left[self._at]

    def look(self, late: bool = False) -> bool:
        """Whether the turn is another's, or the search is over, after the messages that came.

        late: the turn has had its share of the time, so the least that says something is enough.
        """
        trial, sure = self.way.trial, self.way.sure(SURE_LEVEL) if self._of_reads else 0
        if sure > 0 and self.way.gain >= READS_GAIN_MIN:
            self.early = len(self.left) > 1
            self.left, self.over = [self.way], True
            return True
        if sure < 0 or (trial.is_decided and trial.verdict().what == "not held"):
            del self.left[self._at]
        elif trial.count >= self._needed(late) and len(trial.b.blocks) >= BLOCKS_MIN:
            self._at += 1
        else:
            return False
        if self._at >= len(self.left):
            self._end_round()
        return True

    def _needed(self, late: bool) -> int:
        return min(self._need, max(self.way.least, MESSAGES_MIN)) if late else self._need

    def _end_round(self) -> None:
        self._at, self._need = 0, 2 * self._need
        self.left.sort(key=lambda one: -one.gain)
        self.left = self.left[: math.ceil(len(self.left) / 2)]
        self.over = len(self.left) <= 1

    @property
    def judged(self) -> bool:
        """Reports whether any way had messages enough to say something."""
        return not self.left or any(one.trial.count >= one.least for one in self.left)

    def best(self) -> Way | None:
        """What looks best so far, if it looks better than what is in effect."""
        found = max(self.left, key=lambda one: one.gain, default=None)
        if found is None or (self.kind != "ways" and found.sure(BEST_LEVEL) <= 0):
            return None
        return found if found.gain >= GAIN_MIN[self.kind] else None
