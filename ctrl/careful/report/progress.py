"""How a transfer is watched: a bar on a terminal, lines for people, JSON lines for programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from careful.errors import shown
from careful.units import shown_bytes as size

#: How often at most a program is told of bytes that moved, seconds.
_EVERY_S = 0.1


class Lines:
    """No bar: notes go to standard error, one line each.

    Args:
        verbose: whether each file is named when it is done.
        fd: where JSON lines go; None: nowhere.
    """

    def __init__(self, verbose: bool = False, fd: int | None = None) -> None:
        self._verbose = verbose
        self._fd = fd
        self._told_at = 0.0
        self._began = time.monotonic()
        self._done = self._files = self._bytes = self._moved = self._present = self._retries = 0
        self._failures = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        text = None if error is None else shown(str(error) or type(error).__name__)
        if isinstance(error, KeyboardInterrupt):
            text = "interrupted"
        self._tell("end", always=True, failures_count=self._failures, error=text)

    def _tell(self, event: str, always: bool = False, **more: Any) -> None:
        """Write a JSON line; a reader that has gone is not written to again."""
        if self._fd is None:
            return
        now = time.monotonic()
        if not always and now < self._told_at + _EVERY_S:
            return
        self._told_at = now
        line = {
            "event": event,
            "elapsed_s": round(now - self._began, 6),
            "moved_bytes": self._moved,
            "present_bytes": self._present,
            "total_bytes": self._bytes,
            "files_done": self._done,
            "files_count": self._files,
            "retries_count": self._retries,
            **more,
        }
        try:
            os.write(self._fd, json.dumps(line).encode() + b"\n")
        except OSError:
            self._fd = None

    def update(self) -> None:
        """Show the counts."""

    def expect(self, files: int, nbytes: int) -> None:
        """So many files and bytes are to come, in addition."""
        self._files += files
        self._bytes += nbytes
        self.update()

    def moved(self, nbytes: int) -> None:
        """So many bytes came across."""
        self._moved += nbytes
        self.update()
        self._tell("moved")

    def present(self, nbytes: int) -> None:
        """So many bytes need not come."""
        self._present += nbytes
        self.update()

    def retried(self) -> None:
        """A piece is asked for again."""
        self._retries += 1
        self.update()

    def finished(self, name: str) -> None:
        """A file is complete, or failed."""
        self._done += 1
        self.update()
        self._tell("file", always=True, name=name)
        if self._verbose:
            self.say(name)

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        """So many files are complete."""
        if self._fd is not None or self._verbose:
            for name in names():
                self.finished(name)
            return
        self._done += count
        self.update()

    def say(self, text: str) -> None:
        """Print a line, whatever a name in it holds."""
        print(shown(text), file=sys.stderr)

    def note(self, text: str) -> None:
        """Print a note."""
        self.say(f"carefulctl: {text}")
        self._tell("note", always=True, text=text)

    def failed(self, name: str, text: str) -> None:
        """Print why; it is counted for the end."""
        self._failures += 1
        self.say(f"carefulctl: {text}")
        self._tell("error", always=True, name=name, text=text)


class Bar(Lines):
    """Bytes, rate, time left, files and retries, on the terminal at standard error.

    Args:
        verbose, fd: as of Lines.
        clock: seconds.
    """

    def __init__(
        self,
        verbose: bool = False,
        fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(verbose, fd)
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.text import Text

        class Rate(TextColumn):
            """Bytes a second, in the units of the bytes."""

            def render(self, task: Any) -> Text:
                speed = task.finished_speed or task.speed
                return Text("" if speed is None else f"{size(speed)}/s")

        self._bar: Any = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            Rate(""),
            TimeRemainingColumn(),
            TextColumn("{task.fields[files]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=8,
            get_time=clock,
        )
        self._task = self._bar.add_task("", total=0, files="")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._bar.stop()
        super().__exit__(kind, error, trace)

    def update(self) -> None:
        """Show the counts."""
        files = f"{self._done}/{self._files} files"
        if self._retries:
            files += f", {self._retries} retries"
        total = self._bytes - self._present
        self._bar.update(self._task, total=total, completed=self._moved, files=files)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def watch(bar: bool, verbose: bool = False, fd: int | None = None) -> Lines:
    """A bar if it is wanted and standard error is a terminal, else lines.

    Args:
        bar: whether a bar is wanted.
        verbose: whether each file is named.
        fd: where JSON lines go.
    """
    return (Bar if bar and sys.stderr.isatty() else Lines)(verbose, fd)
