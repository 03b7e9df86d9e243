"""Measures how soon `tune auto` answers a change of the path, for each kind of change.

h1 reads from h2, or writes to it, about half of the time, over P1's GAM pipeline, twenty times
slower; h2 is tuned. After the controller has decided, the path changes. The report has the time and
messages from the change until the controller names it, and until the first push that answers it, or
the decision that no change gains. An answer is in time within 5 s, or within 30 messages per arm if
that is later. Owns a lab for the time of each kind. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from auto import careful_up
from bench_lab import (
    CTL,
    LAB,
    PIPELINES,
    TOOL,
    known,
    lab_up,
    on,
    pinned,
    process,
    run,
    up,
    wait_until,
)
from careful.control.instance import live_latency, maps
from careful.control.plans import tune_entry
from careful.plan import class_of
from slow_disk import slow_disk

ROUNDS = 2

ROWS = "runs"
SECONDS, MESSAGES = 5.0, 2 * 30
#: The first words of a decision about a change, and of a decision that no change gains.
SAYS = ("path changed", "store changed", "path as before")
NOTHING = ("nothing to change", "nothing better")
INSTANCE = f"{LAB}-h2"
OPTIONS = ("--scale", "20", "--charge", "payload", "--mtu", "4000")
#: Time from a reset of all links to a link's change; the controller is calm after CALM_S, seconds.
CHANGE_S, CALM_S = 3.0, 6.0
#: Longest time until the controller is calm, and until a change is answered and tried.
SETTLE_S, ANSWER_S = 240.0, 60.0
LOOK_S = 0.02
#: A disk: g in µs and G in µs per KiB, of writes and of reads.
DISK, READS = (3000.0, 400.0), (1000.0, 400.0)
#: GAM's third stage, per fragment and KiB (not scaled).
STAGE, g_US, G_US = 3, 7.5, 24.9

#: Random pauses between messages, at most this many seconds, about a message's time.
APART_S = {4096: 0.01, 65536: 0.06}

#: Its arguments: `read` or `write`, bytes, a file that names the file to read or write, APART_S.
TRAFFIC = """
import random, sys, time
import careful.files

way, nbytes, which = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with careful.files.connect("10.77.0.2") as host:
    print("ready", flush=True)
    while True:
        with open(which) as file:
            name = file.read()
        if way == "read":
            host.read(name, 0, nbytes)
        else:
            host.write(name, bytes(nbytes), 0, sync=False)
        time.sleep(random.uniform(0, float(sys.argv[4])))
"""
#: Foreign datagrams of a frame's size over the same links, by iperf3. A datagram of 3.5 KiB
#: occupies the third link for 1.9 ms: three quarters of its time. (The same load in datagrams of 1
#: KiB delays messages by only 4 %, which needs no answer.)
STREAM = ("iperf3", "-c", "10.77.0.1", "-u", "-l", 3584, "-b", 8 * 3584 * 400, "-t", 600)


class Kind(NamedTuple):
    """A change of the path.

    shown: its name for people; way, nbytes: the traffic; times: factors of the third link's g and
        G; begin: makes the change in a Run.
    """

    shown: str
    begin: Callable[[Run], None]
    way: str = "read"
    nbytes: int = 4096
    times: tuple[float, float] = (1.0, 1.0)


class Run:
    """A lab under traffic, and the means to change it."""

    def __init__(self, kind: Kind, which: Path, stack: ExitStack) -> None:
        self.kind, self.which, self.stack = kind, which, stack
        self.changed_s = 0.0
        self.counts: list[tuple[float, int]] = []
        self.put_back_s: float | None = None
        self.stream: subprocess.Popen[str] | None = None
        self.traffic: subprocess.Popen[str] | None = None

    def start(self) -> None:
        kind = self.kind
        words = (kind.way, str(kind.nbytes), str(self.which), str(APART_S[kind.nbytes]))
        argv = pinned("h1", sys.executable, "-c", TRAFFIC, *words)
        self.traffic = self.stack.enter_context(process(argv, ready="ready"))

    def note_change(self) -> None:
        """Records the time of the change."""
        self.counts.append((time.monotonic(), counted(self.kind)))
        self.changed_s = time.monotonic()

    def link(self) -> None:
        """Changes a link's rate soon."""
        self.changed_s = reset() + CHANGE_S

    def slow(self) -> None:
        """Switches to a file on a slow disk."""
        self.which.write_text("slow/file")
        self.note_change()

    def stream_comes(self) -> None:
        """Starts a second stream."""
        self.stream = self.stack.enter_context(process(on("h2", *STREAM), quiet=True))
        self.note_change()

    def stream_goes(self) -> None:
        """Ends a second stream that was answered."""
        self.stream_comes()
        wait_until(lambda: is_calm(self.changed_s), SETTLE_S, "answer to the stream that comes")
        assert self.stream
        self.stream.terminate()
        self.note_change()

    def other_mode(self) -> None:
        """Restarts careful in generic XDP, and `tune auto` with it."""
        tuned = fragment_bytes(self.kind.nbytes)
        assert self.traffic
        self.traffic.kill()
        run(*pinned("h2", CTL, "down", "eth1"))
        options = ("--xdp", "generic", "--tune", "auto")
        up("h2", "--peers", 2, *exported(self.which.parent / "export"), *options)
        self.start()
        self.note_change()
        end = time.monotonic() + ANSWER_S
        while fragment_bytes(self.kind.nbytes) != tuned and time.monotonic() < end:
            self.look()
        self.put_back_s = time.monotonic()

    def look(self) -> None:
        """Records the messages so far, after a moment."""
        count, now = counted(self.kind), time.monotonic()
        if not self.counts or count != self.counts[-1][1]:
            self.counts.append((now, count))
        time.sleep(LOOK_S)

    def follow(self) -> None:
        """Waits until the change is answered and tried, or until the time limit."""
        end, looked = self.changed_s + ANSWER_S, 0.0
        while (now := time.monotonic()) < end:
            self.look()
            if now > looked + 0.5:
                looked = now
                if is_calm(self.changed_s):
                    return


KINDS = {
    "rate": Kind("a hop's rate halves", Run.link, times=(2.0, 2.0)),
    "overhead": Kind("a hop's g becomes 8 times as much", Run.link, times=(8.0, 1.0)),
    "store": Kind("a slow disk at the receiver", Run.slow, "write", 65536),
    "xdp": Kind("the XDP mode: down, up in generic", Run.other_mode),
    "comes": Kind("a second stream comes", Run.stream_comes),
    "goes": Kind("a second stream goes", Run.stream_goes),
}


def exported(folder: Path) -> tuple[str, ...]:
    """Returns the options of `up`; h1 may write there."""
    return "--export", f"{folder}:rw", "--insecure"


def reset() -> float:
    """Resets all links to their first rates. Returns the time."""
    run(TOOL, "links", "--name", LAB, "--reset")
    return time.monotonic()


def hops(kind: Kind) -> str:
    """Returns GAM's links; the third one may change."""
    stages = (PIPELINES / "gam.toml").read_text().split("[[stage]]")
    if kind.times != (1.0, 1.0):
        g_us, G_us = kind.times[0] * g_US, kind.times[1] * G_US
        change = f"at_s = {CHANGE_S}\ng_us = {g_us}\nG_us_per_KiB = {G_us}\n"
        stages[STAGE] = f"{stages[STAGE].rstrip()}\n[[stage.link.changes]]\n{change}\n"
    return "[[stage]]".join(stages)


def is_calm(since_s: float) -> bool:
    """Reports whether the controller has decided since then and was idle for a while."""
    path, now = known("h2"), time.monotonic()
    if not path or path["figures"] is None or path["on_trial"] or path["put_back"]:
        return False
    at = [float(one["at_s"]) for one in path["decisions"]]
    held = path["held_until"] or 0.0
    return any(one > since_s for one in at) and now > max([*at, held]) + CALM_S


def fragment_bytes(nbytes: int) -> int:
    """Returns the fragment size in effect for messages to h1; 0: no session."""
    try:
        slots = maps.sessions(INSTANCE)
        with maps.tune_map(INSTANCE) as entries:
            found = [tune_entry.read(entries, slot)[class_of(nbytes)].plan for slot in slots]
    except OSError:
        return 0
    return found[0].first_bytes if len(found) == 1 and found[0] else 0


def counted(kind: Kind) -> int:
    """Returns the measured messages of the class so far."""
    index = class_of(kind.nbytes)
    try:
        with maps.live_map(INSTANCE) as entries:
            found = [live_latency.whole(entries, slot) for slot in maps.sessions(INSTANCE)]
    except OSError:
        return 0
    of_stores = kind.way == "write"
    cells = [
        live_latency.stored_in(one)[0] if of_stores else live_latency.cells_in(one) for one in found
    ]
    return sum(cell.count for each in cells for (which, _), cell in each.items() if which == index)


@contextmanager
def files(nbytes: int) -> Iterator[tuple[Path, Path]]:
    """Yields h2's exported folder, and the file that names the traffic's file."""
    with (
        tempfile.TemporaryDirectory(prefix="careful-answer-") as name,
        slow_disk(*DISK, nbytes, READS) as slow,
    ):
        export, which = Path(name) / "export", Path(name) / "which"
        (export / "slow").mkdir(parents=True)
        (export / "file").write_bytes(bytes(nbytes))
        run("mount", "--bind", slow, export / "slow")
        which.write_text("file")
        try:
            yield export, which
        finally:
            subprocess.run(["umount", "-l", export / "slow"], check=False)


def one_kind(kind: Kind) -> dict[str, Any]:
    """Runs a kind. Returns the time of the change, the decisions, and messages over time."""
    with ExitStack() as stack:
        stack.enter_context(lab_up(*OPTIONS, hops=hops(kind)))
        export, which = stack.enter_context(files(kind.nbytes))
        stack.enter_context(careful_up(*exported(export)))
        stack.enter_context(process(on("h1", "iperf3", "-s"), quiet=True))
        change = Run(kind, which, stack)
        change.start()
        stack.enter_context(process(pinned("h2", CTL, "tune", "auto", "eth1"), quiet=True))

        def calm() -> bool:
            if kind.times != (1.0, 1.0):
                reset()
            return is_calm(0.0)

        wait_until(calm, SETTLE_S, "decision on the path as it is")
        kind.begin(change)
        change.follow()
        path = known("h2")
    return {
        "changed_s": change.changed_s,
        "put_back_s": change.put_back_s,
        "decisions": path.get("decisions", []),
        "counts": change.counts,
    }


def times(run: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns the seconds and messages from the change to each step of a run."""
    later = [one for one in run["decisions"] if one["at_s"] > run["changed_s"]]
    found = {}
    for name, wanted in (("said", SAYS), ("push", ("changed",)), ("nothing", NOTHING)):
        found[name] = next((one for one in later if one["what"] in wanted), None)
    if found["push"]:
        found["nothing"] = None
    if run["put_back_s"] is not None:  # the path's earlier figures were restored at once
        found["push"] = {"at_s": run["put_back_s"]}
    return {
        name: {
            "after_s": round(one["at_s"] - run["changed_s"], 3),
            "messages": _count(run, one["at_s"]) - _count(run, run["changed_s"]),
        }
        for name, one in found.items()
        if one is not None
    }


def _count(run: dict[str, Any], at_s: float) -> int:
    """Returns the measured live messages until then."""
    return max((count for when, count in run["counts"] if when <= at_s), default=0)


def row_of(kind: str, run: dict[str, Any]) -> dict[str, Any]:
    """Returns what is kept of a run; `answer` names the step that answered the change: a push, or
    the decision that no change gains. If earlier figures were restored at once, it is the decision
    whether they still hold.
    """
    found = times(run)
    step = "push" if "push" in found else "nothing"
    return {"kind": kind, "answer": "said" if run["put_back_s"] is not None else step, **found}


def in_time(row: dict[str, Any]) -> bool:
    """Reports whether the answer came within 5 s or 30 messages per arm."""
    one = row.get(row["answer"])
    return one is not None and (one["after_s"] <= SECONDS or one["messages"] <= MESSAGES)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="[all]")


def stays(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Reports whether a kept run is not measured again."""
    return row["kind"] not in (args.kinds or KINDS)


def measured(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs each named kind in turn."""
    for _ in range(args.rounds):
        for kind in args.kinds or KINDS:
            found = row_of(kind, one_kind(KINDS[kind]))
            print(found, file=sys.stderr, flush=True)
            yield found


def report(kept: dict[str, Any]) -> bool:
    """Prints the medians of each kind; reports whether all answers came in time."""
    runs = kept["runs"]
    print(
        f"{'medians: seconds, messages':<34}{'said':>14}{'push':>14}{'nothing gains':>14}  in time"
    )
    for kind, about in KINDS.items():
        mine = [one for one in runs if one["kind"] == kind]
        line = f"{about.shown:<34}"
        for name in ("said", "push", "nothing"):
            some = [one[name] for one in mine if name in one]
            both = [[one[key] for one in some] for key in ("after_s", "messages")]
            after_s, count = (statistics.median(each) if each else 0 for each in both)
            line += f"{f'{after_s:.1f} s, {count:.0f}' if some else '-':>14}"
        if mine:
            print(f"{line}{sum(map(in_time, mine)):>5} of {len(mine)}")
    return all(map(in_time, runs))
