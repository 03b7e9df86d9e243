"""Runs transfers like the command: each in its own session, to its end or a signal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from careful.cli.running import run
from careful.daemon.route import Route
from careful.transfer.file.find_partials import find_remote
from careful.transfer.options import Options, Progress
from careful.transfer.run import session
from careful.transfer.run.verify import verify as compare
from fake_daemon import FakeDaemon


def _run(work: Any, route: Route, *given: Any, **more: Any) -> Any:
    return run(route, lambda remote: work(remote, *given, **more))


get = partial(_run, session.get)
put = partial(_run, session.put)
listing = partial(_run, session.listing)
verify = partial(_run, compare)
partials = partial(_run, find_remote)


class Notes(Progress):
    """Collects the messages for a user."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class OneFile:
    """A file at one end, and its target at the other: `a` at the host, `b` here."""

    def __init__(
        self, way: str, route: Route, daemon: FakeDaemon, tmp_path: Path, data: bytes
    ) -> None:
        self.route, self.daemon, self.is_get = route, daemon, way == "get"
        local, remote = tmp_path / "b", daemon.root / "a"
        self.source, self.target = (remote, local) if self.is_get else (local, remote)
        self.source.write_bytes(data)

    def move(self, options: Options, progress: Progress) -> Any:
        """Runs get or put. Returns the report."""
        move = get if self.is_get else put
        source, target = ("a", str(self.target)) if self.is_get else (str(self.source), "a")
        return move(self.route, [source], target, False, options, progress)
