"""How a transfer is watched: a bar on a terminal, lines for what a person should know."""

from __future__ import annotations

import sys
from typing import Any

from careful.errors import shown


class Lines:
    """No bar: notes go to standard error, one line each."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def expect(self, files: int, nbytes: int) -> None: ...

    def moved(self, nbytes: int) -> None: ...

    def present(self, nbytes: int) -> None: ...

    def retried(self) -> None: ...

    def finished(self, name: str) -> None: ...

    def note(self, text: str) -> None:
        """Print a note."""
        print(f"carefulctl: {shown(text)}", file=sys.stderr)


class Bar(Lines):
    """Bytes, rate, time left and files, on the terminal at standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        self._bar: Any = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[files]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._bar.add_task("", total=0, files="")
        self._done = self._files = self._bytes = self._retries = 0

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _update(self) -> None:
        files = f"{self._done}/{self._files} files"
        if self._retries:
            files += f", {self._retries} retries"
        self._bar.update(self._task, total=self._bytes, files=files)

    def expect(self, files: int, nbytes: int) -> None:
        self._files += files
        self._bytes += nbytes
        self._update()

    def moved(self, nbytes: int) -> None:
        self._bar.advance(self._task, nbytes)

    def present(self, nbytes: int) -> None:
        self._bytes -= nbytes
        self._update()

    def retried(self) -> None:
        self._retries += 1
        self._update()

    def finished(self, name: str) -> None:
        self._done += 1
        self._update()

    def note(self, text: str) -> None:
        """Print a note above the bar."""
        line = f"carefulctl: {shown(text)}"
        self._bar.console.print(line, markup=False, highlight=False)


def watch(bar: bool) -> Lines:
    """A bar if it is wanted and standard error is a terminal, else lines."""
    return Bar() if bar and sys.stderr.isatty() else Lines()
