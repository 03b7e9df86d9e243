"""The interface between the controller and a path; instance_path.py and tests implement it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from careful.jsonout import Json
from careful.plan import Limits
from careful.tuning.settings import STORE, Value
from careful.tuning.store_model import Totals
from careful.tuning.verify import Counts

#: (item, version of the tune entry) -> messages counted so far. A plan's item counts sent messages;
#: STORE + a class counts messages stored here.
Live = Mapping[tuple[int, int], Counts]


class Path(Protocol):
    """A path as the controller uses it."""

    def measure(self, quick: bool, /) -> tuple[Json, Limits]:
        """Returns figures like `measure blackbox`, and a frame's payload.

        quick: takes half a second, to react to a change; else it is precise, with pauses for other
        traffic. Raises CarefulError or ValueError.
        """

    def limits(self) -> Limits:
        """Returns the payload of a frame, as far as known without a measurement."""

    def in_effect(self) -> tuple[Value, ...]:
        """Returns the values of all items: plans, and thresholds of store and netTx."""

    def by_hand(self) -> frozenset[int]:
        """Returns the items that the controller must not change."""

    def offer(self, values: Mapping[int, Value], /) -> tuple[int, int]:
        """Writes values as a second version; returns the versions in effect and not in effect.

        Neither offer() nor settle() touches items that the controller must not change.
        """

    def flip(self) -> bool:
        """Puts the other version into effect. Returns False if another process changed them."""

    def settle(self, values: Mapping[int, Value], /) -> None:
        """Puts values into effect."""

    def live(self) -> Live:
        """Returns the latencies of live messages."""

    def stored(self) -> Totals:
        """Returns the counts of messages to files here, and of their writes."""

    def wait(self, seconds: float, /) -> None:
        """Lets messages flow."""


def by_class(live: Live) -> dict[int, Counts]:
    """Adds up all versions of each item."""
    totals: dict[int, Counts] = {}
    for (index, _), counts in live.items():
        totals[index] = totals.get(index, Counts()) + counts
    return totals


def sent(totals: Mapping[int, Counts]) -> dict[int, Counts]:
    """Keeps messages that we sent; the others are the peer's."""
    return {index: counts for index, counts in totals.items() if index < STORE}
