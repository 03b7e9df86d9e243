"""Interrupts transfers at random instants, and repeats the command until it is done.

A round moves a file, a tree, or both, one way. The command gets SIGINT or SIGKILL, or a daemon
SIGKILL, once or twice. Then the same command must bring what is missing, and leave nothing else.
`python tests/support/interrupts.py --rounds 200` runs many rounds, test_interrupts.py a few.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from careful.transfer.file.journal import is_partial
from compare import describe
from hosts import Host, alive, finish, make_file, wait_for
from lab import Lab

VICTIMS = ("command SIGINT", "command SIGKILL", "own daemon", "peer's daemon")
WAYS = ("get", "put")
KINDS = ("tree", "file", "archive", "several")
#: Sizes that give many blocks of a file and many batches of a tree.
BLOCK = ("--block-bytes", "64KiB")
_ARCHIVE = {"mode", "owner", "mtime_ns", "xattrs", "same_as", "target", "data"}
_PLAIN = {"data"}


@dataclass(frozen=True)
class Round:
    """The interruptions of a round.

    Attributes:
        way: "get" or "put".
        kind: one of KINDS.
        hits: victims, one for each run.
        instants: when, as shares of an undisturbed run's time.
    """

    way: str
    kind: str
    hits: tuple[str, ...]
    instants: tuple[float, ...]


def draw(number: int, rng: random.Random) -> Round:
    """Draws a round; all ways, kinds and victims take turns."""
    victim = VICTIMS[number % len(VICTIMS)]
    more = rng.choice(VICTIMS[:2])
    hits = (victim, more) if rng.random() < 0.3 else (victim,)
    way, kind = WAYS[number // len(VICTIMS) % 2], rng.choice(KINDS)
    return Round(way, kind, hits, tuple(rng.uniform(0.3, 1) for _ in hits))


def fill(top: Path) -> None:
    """Makes many small files and some large ones in folders, and a large file alone."""
    for folder in range(6):
        where = top / f"tree/folder {folder}"
        where.mkdir(parents=True)
        for index in range(100):
            make_file(where / f"f{index}", 100 * folder + index)
    for index in range(4):
        make_file(top / f"tree/folder {index}/large", (index + 1) << 20, index)
    os.link(top / "tree/folder 1/large", top / "tree/again")
    (top / "tree/link").symlink_to("folder 1")
    make_file(top / "file", 12 << 20)


class Arena:
    """Two hosts with the same sources, and the times of undisturbed transfers."""

    def __init__(self, one: Host, other: Host) -> None:
        self.one, self.other = one, other
        fill(one.own)
        fill(other.export)
        self.took_s: dict[tuple[str, str], float] = {}

    def _sources(self, case: Round) -> list[Path]:
        names = {"file": ["file"], "several": ["file", "tree"]}.get(case.kind, ["tree"])
        top = self.other.export if case.way == "get" else self.one.own
        return [top / name for name in names]

    def target(self, case: Round) -> Path:
        """Returns the target under a new name; several sources go below it."""
        return (self.one.own if case.way == "get" else self.other.export) / "new"

    def command(self, case: Round) -> tuple[str | Path, ...]:
        """Returns a user's command, the same each time."""
        how = {"tree": ["-r"], "file": []}.get(case.kind, ["-a"])
        slash = "/" * (case.kind in ("tree", "archive"))
        sources = self._sources(case)
        if case.way == "get":
            names = [f"h2:{one.name}{slash}" for one in sources]
            return "get", *how, *BLOCK, *names, self.target(case)
        return (
            "put",
            *how,
            *BLOCK,
            *(f"{one}{slash}" for one in sources),
            f"h2:{self.target(case).name}",
        )

    def clear(self, case: Round) -> None:
        """Empties the target."""
        for path in self.target(case).parent.iterdir():
            if path.name == "new":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if case.kind == "several":
            self.target(case).mkdir()

    def _time(self, case: Round) -> float:
        key = case.way, case.kind
        if key not in self.took_s:
            began = time.monotonic()
            self.one.ctl(*self.command(case))
            self.took_s[key] = time.monotonic() - began
            self.clear(case)
        return self.took_s[key]

    def interrupt(self, case: Round, victim: str, instant: float) -> str:
        """Runs the command and interrupts it. Returns how it ended."""
        job = self.one.start(*self.command(case))
        time.sleep(instant * self._time(case))
        if victim.startswith("command"):
            job.send_signal(signal.SIGINT if victim.endswith("INT") else signal.SIGKILL)
        else:
            host = self.one if victim.startswith("own") else self.other
            pid = host.pid
            os.kill(pid, signal.SIGKILL)
        status, _, errors = finish(job)
        # Before our own code runs, Python answers Ctrl-C with a traceback.
        target = self.target(case)
        began = target.exists() and (case.kind != "several" or any(target.iterdir()))
        early = victim.endswith("INT") and not began
        assert "Traceback" not in errors or early, errors
        if not victim.startswith("command"):
            wait_for(lambda: not alive(pid), "the end of carefuld")
            host.up()
        return f"{victim}: {'done before' if status == 0 else f'status {status}'}"

    def is_there(self, case: Round) -> bool:
        """Reports whether the target equals the source."""
        target = self.target(case)
        if case.kind == "several":
            return all(self._is_same(case, one, target / one.name) for one in self._sources(case))
        return self._is_same(case, *self._sources(case), target)

    def _is_same(self, case: Round, source: Path, target: Path) -> bool:
        if not target.exists():
            return False
        if source.is_file():
            return source.read_bytes() == target.read_bytes()
        counts = _PLAIN if case.kind == "tree" else _ARCHIVE
        mine, theirs = describe(source), describe(target)
        if case.kind == "tree":  # symlinks are skipped
            del mine["link"]
        return mine.keys() == theirs.keys() and all(
            {key: value for key, value in one.items() if key in counts}
            == {key: value for key, value in theirs[name].items() if key in counts}
            for name, one in mine.items()
        )

    def play(self, case: Round) -> tuple[list[str], int]:
        """Plays a round. Returns the ends of its runs, and the bytes that the last run did not
        fetch.

        Raises:
            AssertionError: a promise was broken.
        """
        self.clear(case)
        self._time(case)
        how = []
        for victim, instant in zip(case.hits, case.instants, strict=True):
            how.append(self.interrupt(case, victim, instant))
            if how[-1].endswith("done before"):
                assert self.is_there(case), (case, how)
                break
        return how, self.go_on(case, how)

    def go_on(self, case: Round, how: list[str]) -> int:
        """Repeats the command to its end. Returns the bytes that it did not fetch again.

        Raises:
            AssertionError: a promise was broken.
        """
        before = sum(path.stat().st_size for path in self._files(case))
        done = self.one.ctl(*self.command(case), "--json", check=False)
        assert done.returncode == 0, (case, how, done.stderr[:300])
        assert self.is_there(case), (case, how)
        left = [path for path in self.target(case).parent.rglob("*") if is_partial(path.name)]
        assert left == [], (case, how)
        found = json.loads(done.stdout)
        # Complete files, and the blocks in journals of partial files, are not fetched again.
        spared = found["resumed_bytes"] + sum(one["bytes"] for one in found["equal"])
        assert spared >= before, (case, how)
        self.clear(case)
        return int(spared)

    def _files(self, case: Round) -> list[Path]:
        target = self.target(case)
        inodes = {
            path.lstat().st_ino: path
            for path in target.rglob("*")
            if path.is_file() and not path.is_symlink() and not is_partial(path.name)
        }
        return list(inodes.values())


def main() -> int:
    """Plays many rounds and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    resumed = broken = 0
    lab = Lab()
    with tempfile.TemporaryDirectory() as folder:
        hosts = [Host(lab, name, Path(folder)) for name in lab.hosts]
        try:
            for host in hosts:
                host.up()
            arena = Arena(*hosts)
            for number in range(options.first, options.first + options.rounds):
                case = draw(number, random.Random(options.seed * 1_000_003 + number))
                try:
                    how, nbytes = arena.play(case)
                except AssertionError as error:
                    print(f"round {number}, {case}: BROKEN: {error}", file=sys.stderr, flush=True)
                    broken += 1
                    continue
                counts.update(how)
                resumed += nbytes > 0
        finally:
            for host in hosts:
                host.ctl("down", "eth1", check=False)
            lab.down()
    for how, count in counts.most_common():
        print(f"{count:5}  {how}")
    print(f"{options.rounds} rounds, {resumed} went on with something, {broken} broken")
    return broken > 0


if __name__ == "__main__":
    sys.exit(main())
