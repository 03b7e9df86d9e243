"""Schedules the controllers of one process.

One path is measured at a time. The frames of two measurements would meet in this host's engine and
device, and each would count the other's as the path's cost. The path measured longest ago goes
first, so that none is measured twice while another waits.

A/Bs of other paths continue in the measurement's pauses. Their messages wait for the measurement's
frames if they share this host or a link, which nobody here can tell. Messages that came while a
train passed are therefore left out. Messages that still waited when the train ended remain in the
A/B. They favour neither plan, because the plans take turns at random; they widen the error, which
is computed from blocks (verify.py). A comparison with earlier messages cannot tolerate even that.
During a measurement shifts are therefore ignored, and no other measurement starts.
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
        """Adds new messages to its A/B; keep False: ignores them."""

    def step(self, alone: bool = True, /) -> float:
        """Does what is due; returns the seconds until the next step."""


@dataclass(eq=False)
class Turn:
    """A controller's schedule. due: next step; measured: when it last delayed the others."""

    controller: Stepped
    due: float
    measured: float = float("-inf")


class Turns:
    """All controllers of a process.

    Args:
        clock: seconds; never goes back.
        sleep: lets this many seconds pass.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._all: list[Turn] = []
        self._stepping: Turn | None = None
        self._held_up = False  # by the controller that steps

    def add(self, controller: Stepped) -> Turn:
        one = Turn(controller, self._clock())
        self._all.append(one)
        return one

    def remove(self, one: Turn) -> None:
        self._all.remove(one)

    def due(self) -> float:
        return min((one.due for one in self._all), default=float("inf"))

    def step(self) -> None:
        """Steps all controllers that are due, up to one that delays the others."""
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
                for each in self._all:  # what they postponed, in order
                    each.due = min(each.due, one.measured)
                return

    def meanwhile(self, seconds: float) -> None:
        """Fills a pause of the stepping controller with the A/Bs of the others."""
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
