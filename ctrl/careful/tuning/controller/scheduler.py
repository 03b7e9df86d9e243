"""Schedules the controllers of one process.

One path is measured at a time. The frames of two measurements would meet in this host's engine and
device, and each measurement would count the other's frames as the path's cost. The path whose last
measurement is oldest goes first, so that no path is measured twice while another waits.

A/Bs of other paths continue in the measurement's pauses. Their messages may wait for the
measurement's frames, in this host or on a link. So messages that came while a train passed are left
out. Messages that still waited when the train ended remain in the A/B. These favour neither plan,
because the plans take turns at random; but they widen the error, which is computed from blocks
(verify.py). A shift is a comparison with earlier messages, which even these would distort. So
shifts are ignored during a measurement, and no other measurement begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Steppable(Protocol):
    """A controller (policy.Controller)."""

    @property
    def trying(self) -> bool:
        """Reports whether an A/B or a search is under way."""

    def collect(self, keep: bool, /) -> None:
        """Adds new messages to the A/B or search; keep False: ignores them."""

    def step(self, alone: bool = True, /) -> float:
        """Does what is due; returns the seconds until the next step."""


@dataclass(eq=False)
class Turn:
    """A controller's schedule. due: time of the next step; measured: when it last measured."""

    controller: Steppable
    due: float
    measured: float = float("-inf")


class Scheduler:
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
        self._held_up = False  # the controller that steps now has measured its path

    def add(self, controller: Steppable) -> Turn:
        turn = Turn(controller, self._clock())
        self._all.append(turn)
        return turn

    def remove(self, turn: Turn) -> None:
        self._all.remove(turn)

    def due(self) -> float:
        return min((turn.due for turn in self._all), default=float("inf"))

    def step(self) -> None:
        """Steps the controllers that are due, until one of them has measured its path."""
        now = self._clock()
        for turn in sorted(self._due(self._all, now), key=lambda other: other.measured):
            self._stepping, self._held_up = turn, False
            began = self._clock()
            try:
                turn.due = began + turn.controller.step()
            finally:
                self._stepping = None
            if self._held_up:
                turn.measured = self._clock()
                for other in self._all:  # steps that were postponed, in order
                    other.due = min(other.due, turn.measured)
                return

    def meanwhile(self, seconds: float) -> None:
        """Fills a pause of the stepping controller with the A/Bs of the others."""
        self._held_up = True
        others = [turn for turn in self._all if turn is not self._stepping]
        self._collect(others, keep=False)
        until = self._clock() + seconds
        while (now := self._clock()) < until:
            for turn in self._due(others, now):
                turn.due = now + turn.controller.step(False)
            next_s = min([until, *(turn.due for turn in others)]) - self._clock()
            if next_s > 0:
                self._sleep(next_s)
        self._collect(others, keep=True)

    @staticmethod
    def _collect(turns: Iterable[Turn], keep: bool) -> None:
        for turn in turns:
            if turn.controller.trying:
                turn.controller.collect(keep)

    @staticmethod
    def _due(turns: Iterable[Turn], now: float) -> list[Turn]:
        return [turn for turn in turns if turn.due <= now]
