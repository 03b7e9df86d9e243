"""The events of a transfer: lines for people, JSON lines for programs; `bar` draws them."""

from __future__ import annotations

import json
import os
import select
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable

from careful.errors import CarefulError, is_debugging, shown, spelled
from careful.transfer.options import Progress
from careful.transfer.tree.existing import REFUSED
from careful.units import counted

#: Least time between two reports of moved bytes to a program, seconds.
_EVERY_S = 0.1
#: Longest wait for a program that does not read a non-blocking pipe, seconds.
_PATIENCE_S = 10.0
#: Failures that are named for each reason; more are counted.
_NAMED = 10


class Events:
    """JSON lines on a descriptor; stops when the reader is gone.

    Args:
        fd: blocking or not.
    """

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def write(self, line: dict[str, object], wait: bool) -> bool:
        """Writes a whole line or nothing; reports whether it wrote.

        wait: whether to wait for a slow reader.
        """
        data = memoryview(json.dumps(line).encode() + b"\n")
        begun = False
        while data and self._fd is not None:
            try:
                data = data[os.write(self._fd, data) :]
                begun = True
            except BlockingIOError:
                if not (wait or begun):
                    return False
                self._wait()
            except OSError:
                self._fd = None
        return not data

    def _wait(self) -> None:
        """Waits for room in the pipe; stops writing for ever after _PATIENCE_S."""
        assert self._fd is not None
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        if not poll.poll(_PATIENCE_S * 1000):
            self._fd = None


class Lines(Progress):
    """Notes on standard error, one line each, without a bar.

    Args:
        names: prints each finished file; None: not printed.
        fd: where JSON lines go; None: nowhere.
    """

    def __init__(self, names: Callable[[str], None] | None = None, fd: int | None = None) -> None:
        self._names = names
        self._events = None if fd is None else Events(fd)
        self._told_at = 0.0
        self._began = time.monotonic()
        self._done = self._files = self._bytes = self._moved = self._present = self._retries = 0
        self._furthest = 0  # bytes present at the end of the best try
        self._failures: Counter[str] = Counter()
        self._failed: set[str] = set()

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        for reason, count in self._failures.items():
            if count > _NAMED and self._names is None:
                self.say(f"carefulctl: {_more(count - _NAMED, reason)}")
        text = None if error is None else shown(str(error) or type(error).__name__)
        if isinstance(error, KeyboardInterrupt):
            text = "interrupted"
        self._tell("end", True, failures_count=self._failures.total(), error=text)

    def _tell(self, event: str, wait: bool = False, **more: object) -> None:
        """Sends an event to the program; events of moved bytes are rate-limited."""
        now = time.monotonic()
        if self._events is None or (not wait and now < self._told_at + _EVERY_S):
            return
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
        if self._events.write(line, wait):
            self._told_at = now

    def update(self) -> None:
        """Shows the counts."""

    def expect(self, files: int, nbytes: int) -> None:
        self._files += files
        self._bytes += nbytes
        self.update()

    def moved(self, nbytes: int) -> None:
        self._moved += nbytes
        self.update()
        self._tell("moved")

    def present(self, nbytes: int) -> None:
        """Counts bytes that are present already."""
        self._present += nbytes
        self.update()

    @property
    def has_begun(self) -> bool:
        return bool(self._files or self._moved or self._present)

    @property
    def has_moved(self) -> bool:
        """Reports whether this try has more bytes than the best try before.

        A try that only repeats lost bytes is no progress.
        """
        return self._moved + self._present > self._furthest

    def again(self) -> None:
        """Restarts the same transfer; its bytes will be counted as present."""
        self._furthest = max(self._furthest, self._moved + self._present)
        self._done = self._files = self._bytes = self._moved = self._present = 0
        self.update()
        self._tell("again", True)

    def retried(self) -> None:
        self._retries += 1
        self.update()

    def finished(self, name: str) -> None:
        self._done += 1
        self.update()
        self._tell("file", True, name=name)
        if self._names and name not in self._failed:
            self._names(shown(name))

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        if self._events is not None or self._names:
            for name in names():
                self.finished(name)
            return
        self._done += count
        self.update()

    def say(self, text: str) -> None:
        """Prints a line; escapes any name in it."""
        print(shown(text), file=sys.stderr)

    def note(self, text: str) -> None:
        self.say(f"carefulctl: {shown(text)}")
        self._tell("note", True, text=text)

    def failed(self, name: str, error: CarefulError) -> None:
        """Prints an error; of many with the same reason, only the first few, and later a count."""
        self._failures[error.reason] += 1
        self._failed.add(name)
        if self._failures[error.reason] <= _NAMED or self._names:
            for line in origin(error) if is_debugging() else ():
                self.say(line)
            self.say(f"carefulctl: {shown(str(error))}")
        self._tell("error", True, name=name, text=str(error))


def _more(count: int, reason: str) -> str:
    files = counted(count, "more file")
    if reason != spelled(REFUSED):
        return f"{files}: {reason}"
    return f"{files} {'exists and differs' if count == 1 else 'exist and differ'}"


def origin(error: CarefulError) -> list[str]:
    """Returns lines that show where an error was raised, or where it was recorded."""
    if error.__traceback__ is not None:
        parts = traceback.format_exception(error)
    else:
        parts = ["Noted, and not raised, here (most recent call last):\n"]
        parts += [*traceback.format_stack(), *traceback.format_exception_only(error)]
    return "".join(parts).splitlines()
