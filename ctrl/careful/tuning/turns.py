"""Whose turn it is, where one process tunes several paths.

One path is measured at a time: the frames of two measurements would meet in this host's engine and
device, whatever way they take from there, and each would see the other's as the path's cost. Who
was measured longest ago is first, so that nobody is measured twice while another waits.

A/Bs of the other paths go on, in the measurement's pauses. Their messages wait for its frames
where they share something with them: this host, or a link on the way, which nobody here can tell.
So what came while a train passed is left out of them. What still waited for one's end is in them,
and favours neither plan, for these take turns at random: it widens the error, which is judged from
blocks (verify.py). What compares messages with those of before cannot stand even that: no shift is
looked for meanwhile, and nobody starts another measurement. Pure but for the clock and the sleep
that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Stepped(Protocol):
    """A controller (decide.Controller)."""

    @property
    def trying(self) -> bool:
        """Reports whether an A/B is under way."""

    def collect(self, keep: bool, /) -> None:
        """What came since the last look, into its A/B; or out of it."""

    def step(self, alone: bool = True, /) -> float:
        """Look, and do what is due; seconds until the next look."""


@dataclass(eq=False)
class Turn:
    """A controller's. due: when it looks next; measured: when it last held the others up."""

    controller: Stepped
    due: float
    measured: float = float("-inf")


class Turns:
    """All controllers of a process.

    Args:
        clock: seconds, that only rise.
        sleep: lets so many seconds pass.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._all: list[Turn] = []
        self._stepping: Turn | None = None
        self._held_up = False  # by the one that steps

    def add(self, controller: Stepped) -> Turn:
        """One more; its turn is now."""
        one = Turn(controller, self._clock())
        self._all.append(one)
        return one

    def remove(self, one: Turn) -> None:
        """It is no longer tuned."""
        self._all.remove(one)

    def due(self) -> float:
        """When the next turn is; infinite where there is none."""
        return min((one.due for one in self._all), default=float("inf"))

    def step(self) -> None:
        """All whose turn it is, up to one that holds the others up."""
        now = self._clock()
        for one in sorted(self._due(self._all, now), key=lambda each: each.measured):
            self._stepping, self._held_up = one, False
            began = self._clock()
            try:
                one.due = began + one.controller.step()
            finally:
                self._stepping = None
            if self._held_up:
                one.measured = self._clock()
                for each in self._all:  # what they put off, in order
                    each.due = min(each.due, one.measured)
                return

    def meanwhile(self, seconds: float) -> None:
        """A pause of the one that steps: the others' A/Bs go on."""
        self._held_up = True
        others = [one for one in self._all if one is not self._stepping]
        self._collect(others, keep=False)
        until = self._clock() + seconds
        while (now := self._clock()) < until:
            for one in self._due(others, now):
                one.due = now + one.controller.step(False)
            next_s = min([until, *(one.due for one in others)]) - self._clock()
            if next_s > 0:
                self._sleep(next_s)
        self._collect(others, keep=True)

    @staticmethod
    def _collect(some: Iterable[Turn], keep: bool) -> None:
        for one in some:
            if one.controller.trying:
                one.controller.collect(keep)

    @staticmethod
    def _due(some: Iterable[Turn], now: float) -> list[Turn]:
        return [one for one in some if one.due <= now]
