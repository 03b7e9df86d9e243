"""The bar of a transfer on a terminal: name, share, bytes, rate, time left, a silent peer."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

from careful.errors import shown
from careful.render.files.progress import Lines
from careful.render.refresh import signals_wait
from careful.units import counted, shown_bytes, shown_rate

#: Time over which the rate is averaged, seconds.
_SPAN_S = 4.0
#: Silence after which the bar names the host that it waits for, seconds.
_QUIET_S = 2.0
#: Characters of the name that are shown.
_NAME_MOST = 24


class Rate:
    """Bytes a second over the last seconds, and the time since the last bytes.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._heard_at = clock()
        self._samples = deque([(self._heard_at, 0)])

    def note(self, moved: int) -> None:
        """Records the total so far."""
        now = self._heard_at = self._clock()
        if now >= self._samples[-1][0] + 0.1:
            self._samples.append((now, moved))
        else:
            self._samples[-1] = (self._samples[-1][0], moved)
        self._forget(now)

    def _forget(self, now: float) -> None:
        while len(self._samples) > 1 and self._samples[1][0] <= now - _SPAN_S:
            self._samples.popleft()

    def per_s(self) -> float:
        """Returns bytes a second; 0 after a silence of _SPAN_S."""
        now = self._clock()
        self._forget(now)
        began, before = self._samples[0]
        if began <= now - _SPAN_S and len(self._samples) == 1:
            return 0.0
        return (self._samples[-1][1] - before) / max(now - began, 1e-3)

    @property
    def quiet_s(self) -> float:
        return self._clock() - self._heard_at


class Bar(Lines):
    """Lines above a bar, on the terminal at standard error.

    Args:
        names, fd: as for Lines; names on the same terminal appear above the bar.
        host: the host that the transfer waits for.
        name: name of the file or tree that is copied.
        clock: seconds.
    """

    def __init__(
        self,
        names: Callable[[str], None] | None = None,
        fd: int | None = None,
        host: str = "the other host",
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # Names that go to a file or a pipe are not printed above the bar.
        super().__init__(self.say if names and sys.stdout.isatty() else names, fd)
        self._host, self._name = host, shown(name)
        if len(self._name) > _NAME_MOST:
            self._name = f"…{self._name[1 - _NAME_MOST :]}"
        self._rate = Rate(clock)
        bar = self

        class Said(ProgressColumn):
            """The text of the bar."""

            max_refresh = None

            def render(self, task: Task) -> Text:
                return bar.said()

        self._bar: Any = Progress(
            BarColumn(bar_width=None),
            Said(table_column=Column(no_wrap=True)),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=8,
            expand=True,
            redirect_stdout=False,
        )
        self._task = self._bar.add_task("", total=0)

    def __enter__(self) -> Bar:
        try:
            with signals_wait():
                self._bar.start()
        except BaseException:  # a signal that signals_wait() held back
            self._stop()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._stop()
        finally:
            self._stop()  # a signal may have come before signals were held back
            super().__exit__(kind, error, trace)

    def _stop(self) -> None:
        with signals_wait():
            self._bar.stop()

    def said(self) -> Text:
        """Returns name, share, bytes, rate, time left or the silent host, files and retries."""
        total = self._bytes - self._present
        per_s = self._rate.per_s()
        words = [self._name] if self._name else []
        words += [f"{100 * self._moved // total} %"] if total > 0 else []
        words.append(f"{shown_bytes(self._moved)} of {shown_bytes(total)}")
        waits = ""
        if self._rate.quiet_s >= _QUIET_S:
            done = self._moved >= total > 0
            what = "finishing" if done else f"waiting for {self._host}"
            waits = f"{what}, {self._rate.quiet_s:.0f} s"
            words.append(waits)
        else:
            words.append(shown_rate(per_s))
            if per_s:
                words.append(str(timedelta(seconds=round((total - self._moved) / per_s))))
        words.append(f"{self._done}/{self._files} files")
        if self._retries:
            words.append(f"{counted(self._retries, 'piece')} retried")
        text = Text()
        for number, word in enumerate(words):
            text.append("  " if number else "")
            text.append(word, style="bold red" if word == waits else "")
        return text

    def update(self) -> None:
        self._rate.note(self._moved)
        self._bar.update(self._task, total=self._bytes - self._present, completed=self._moved)

    def say(self, text: str) -> None:
        self._bar.console.print(shown(text), markup=False, highlight=False, soft_wrap=True)
