"""What the controller sees of a path, and does to it: running.py's, or a test's in virtual time.

Owns no rule: those are decide.py's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from careful.jsonout import Json
from careful.plan import Limits
from careful.tuning.items import STORE, Value
from careful.tuning.stores import Totals
from careful.tuning.verify import Counts

#: (item, version of the tune entry) -> what was counted so far. An item is a class's plan, and
#: the messages that are sent, or STORE + a class: its store's threshold, and what is stored here.
Live = Mapping[tuple[int, int], Counts]


class Path(Protocol):
    """What the controller does to a path; a test has one in virtual time."""

    def measure(self, quick: bool, /) -> tuple[Json, Limits]:
        """Figures as of `measure blackbox`, and payload of a frame; CarefulError, ValueError.

        quick: half a second, to answer a change; else closely, and so that little is held up.
        """

    def limits(self) -> Limits:
        """Payload of a frame, as far as it is known where no measurement works."""

    def in_effect(self) -> tuple[Value, ...]:
        """Values of all items: plans, and thresholds of store and netTx."""

    def by_hand(self) -> frozenset[int]:
        """Items that are not ours to change."""

    def offer(self, values: Mapping[int, Value], /) -> tuple[int, int]:
        """Put values beside those in effect; the versions in effect, and beside it.

        Neither this nor settle() touches items that are not ours to change.
        """

    def flip(self) -> bool:
        """Make the other of the two versions the one in effect; False: somebody changed them."""

    def settle(self, values: Mapping[int, Value], /) -> None:
        """Put values into effect."""

    def live(self) -> Live:
        """What live messages took."""

    def stored(self) -> Totals:
        """What was written to files here, and what the writes took."""

    def wait(self, seconds: float, /) -> None:
        """Let messages flow."""


def by_class(live: Live) -> dict[int, Counts]:
    """All versions of an item together."""
    totals: dict[int, Counts] = {}
    for (index, _), counts in live.items():
        totals[index] = totals.get(index, Counts()) + counts
    return totals


def sent(totals: Mapping[int, Counts]) -> dict[int, Counts]:
    """Those that were sent; the others are the peer's."""
    return {index: one for index, one in totals.items() if index < STORE}
