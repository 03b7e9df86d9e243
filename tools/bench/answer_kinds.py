"""Changes a path under `tune auto` for tools/bench/run answer, one kind a run.

Owns the lab, both carefulds, the traffic, and when it changes. The answer scenario
judges a run's figures. Calls auto.py and slow_disk.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auto import careful_up
from bench_lab import CTL, LAB, PIPELINES, TOOL, known, lab_up, pinned, process, run, up, wait_until
from careful.control import live, maps, tune_entry
from careful.plan import class_of
from slow_disk import slow_disk

INSTANCE = f"{LAB}-h2"
OPTIONS = ("--scale", "20", "--charge", "payload", "--mtu", "4000")
#: A link's change comes so long after a reset of all links; what there was until then is calm.
CHANGE_S, CALM_S = 3.0, 6.0
#: So long at most until it is calm, and until a change is answered and tried.
SETTLE_S, ANSWER_S = 240.0, 60.0
LOOK_S = 0.02
#: A disk: g in µs and G in µs per KiB of its writes, and of its reads.
DISK, READS = (3000.0, 400.0), (1000.0, 400.0)
#: GAM's third stage, per fragment and KiB (not scaled).
STAGE, g_US, G_US = 3, 7.5, 24.9

#: Messages are up to so many seconds apart, at random: about as long as they take.
APART_S = {4096: 0.01, 65536: 0.06}

#: `read` or `write`, bytes, a file with the name of the file that is read or written, APART_S.
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
#: Somebody else's datagrams over the same links, as large as frames are, one every so many seconds.
STREAM = """
import socket, sys, time

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    due = time.monotonic()
    while True:
        out.sendto(bytes(3584), ("10.77.0.1", 7))
        due += float(sys.argv[1])
        time.sleep(max(0.0, due - time.monotonic()))
"""
SINK = """
import socket, time

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("0.0.0.0", 7))
    print("ready", flush=True)
    while True:
        time.sleep(60)
"""
#: One of 3.5 KiB occupies the third link for 1.9 ms: three quarters of its time. (As much in
#: datagrams of 1 KiB makes messages 4 % longer, so that there is nothing to answer.)
STREAM_EVERY_S = 0.0025


@dataclass(frozen=True)
class Kind:
    """A change of the path.

    shown: in words; way, nbytes: the traffic; times: by how much g and G of the third link change;
    begin: does what changes, of a Run.
    """

    shown: str
    begin: Callable[[Run], None]
    way: str = "read"
    nbytes: int = 4096
    times: tuple[float, float] = (1.0, 1.0)


class Run:
    """A lab under traffic, with what is to change at hand."""

    def __init__(self, kind: Kind, which: Path, stack: ExitStack) -> None:
        self.kind, self.which, self.stack = kind, which, stack
        self.changed_s = 0.0
        self.counts: list[tuple[float, int]] = []
        self.put_back_s: float | None = None
        self.stream: subprocess.Popen[str] | None = None
        self.traffic: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """The traffic begins."""
        kind = self.kind
        words = (kind.way, str(kind.nbytes), str(self.which), str(APART_S[kind.nbytes]))
        argv = pinned("h1", sys.executable, "-c", TRAFFIC, *words)
        self.traffic = self.stack.enter_context(process(argv, ready="ready"))

    def now(self) -> None:
        """The change is now."""
        self.counts.append((time.monotonic(), counted(self.kind)))
        self.changed_s = time.monotonic()

    def link(self) -> None:
        """A link's rate changes, soon."""
        self.changed_s = reset() + CHANGE_S

    def slow(self) -> None:
        """The file is another, on a slow disk."""
        self.which.write_text("slow/file")
        self.now()

    def stream_comes(self) -> None:
        """A second stream."""
        argv = (sys.executable, "-c", STREAM, str(STREAM_EVERY_S))
        self.stream = self.stack.enter_context(process(pinned("h2", *argv), quiet=True))
        self.now()

    def stream_goes(self) -> None:
        """It came, was answered, and goes."""
        self.stream_comes()
        wait_until(lambda: is_calm(self.changed_s), SETTLE_S, "answer to the stream that comes")
        assert self.stream
        self.stream.terminate()
        self.now()

    def other_mode(self) -> None:
        """Down and up again in generic XDP, and `tune auto` with it."""
        tuned = fragment_bytes(self.kind.nbytes)
        assert self.traffic
        self.traffic.kill()
        run(*pinned("h2", CTL, "down", "eth1"))
        up(
            "h2",
            "--peers",
            2,
            *exported(self.which.parent / "export"),
            "--xdp",
            "generic",
            "--tune",
            "auto",
        )
        self.start()
        self.now()
        end = time.monotonic() + ANSWER_S
        while fragment_bytes(self.kind.nbytes) != tuned and time.monotonic() < end:
            self.look()
        self.put_back_s = time.monotonic()

    def look(self) -> None:
        """How many messages came until now, a moment later."""
        count, now = counted(self.kind), time.monotonic()
        if not self.counts or count != self.counts[-1][1]:
            self.counts.append((now, count))
        time.sleep(LOOK_S)

    def follow(self) -> None:
        """Until the change is answered and tried, or for so long."""
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
    """Options of `up`: h1 may write there, too."""
    return "--export", f"{folder}:rw", "--insecure"


def reset() -> float:
    """All links have their first rates again; when."""
    run(TOOL, "links", "--name", LAB, "--reset")
    return time.monotonic()


def hops(kind: Kind) -> str:
    """GAM, whose third link changes if it is to."""
    stages = (PIPELINES / "gam.toml").read_text().split("[[stage]]")
    if kind.times != (1.0, 1.0):
        g_us, G_us = kind.times[0] * g_US, kind.times[1] * G_US
        change = f"at_s = {CHANGE_S}\ng_us = {g_us}\nG_us_per_KiB = {G_us}\n"
        stages[STAGE] = f"{stages[STAGE].rstrip()}\n[[stage.link.changes]]\n{change}\n"
    return "[[stage]]".join(stages)


def is_calm(since_s: float) -> bool:
    """Reports whether the controller has decided since then, and then nothing for a while."""
    path, now = known("h2"), time.monotonic()
    if not path or path["figures"] is None or path["on_trial"] or path["put_back"]:
        return False
    at = [float(one["at_s"]) for one in path["decisions"]]
    held = path["held_until"] or 0.0
    return any(one > since_s for one in at) and now > max([*at, held]) + CALM_S


def fragment_bytes(nbytes: int) -> int:
    """In effect for messages to h1; 0: there is no such session."""
    try:
        slots = maps.sessions(INSTANCE)
        with maps.tune_map(INSTANCE) as entries:
            found = [tune_entry.read(entries, slot)[class_of(nbytes)].plan for slot in slots]
    except OSError:
        return 0
    return found[0].first_bytes if len(found) == 1 and found[0] else 0


def counted(kind: Kind) -> int:
    """Messages of the class that were measured so far."""
    index = class_of(kind.nbytes)
    try:
        with maps.live_map(INSTANCE) as entries:
            found = [live.whole(entries, slot) for slot in maps.sessions(INSTANCE)]
    except OSError:
        return 0
    of_stores = kind.way == "write"
    cells = [live.stored_in(one)[0] if of_stores else live.cells_in(one) for one in found]
    return sum(cell.count for each in cells for (which, _), cell in each.items() if which == index)


@contextmanager
def files(nbytes: int) -> Iterator[tuple[Path, Path]]:
    """Yields the folder that h2 exports, and the file that names the traffic's file in it."""
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
    """When it changed, what was decided, and when which messages had come."""
    with ExitStack() as stack:
        stack.enter_context(lab_up(*OPTIONS, hops=hops(kind)))
        export, which = stack.enter_context(files(kind.nbytes))
        stack.enter_context(careful_up(*exported(export)))
        stack.enter_context(process(pinned("h1", sys.executable, "-c", SINK), ready="ready"))
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
        "class": class_of(kind.nbytes),
        "changed_s": change.changed_s,
        "put_back_s": change.put_back_s,
        "decisions": path.get("decisions", []),
        "counts": change.counts,
    }
