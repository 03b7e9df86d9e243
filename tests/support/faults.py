"""Breaks real carefulds at random instants, and checks that all is well afterwards.

In a round two transfers begin, one of them between hosts that the fault does not touch. When a
random share of the other's bytes has moved, something breaks. Both commands must end in bounded
time: the undisturbed one successfully, the other successfully or with one error line. The next
transfers must succeed. `python tests/support/faults.py --rounds 200` runs many and writes what
happened; test_faults.py runs each fault once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from breaks import FAULTS, Fault, old_address
from ground import EXPORTED, FILE_BYTES, Ground
from hosts import Host, finish, wait_for
from lab import Lab, commit

Keep = Callable[[str, str, float, float], None]
#: An operation without an answer gives up after 30 s (--stall).
BOUND_S = 45
#: The largest share of a file that has moved when a fault strikes.
SHARE_MAX = 0.7


NOTHING_LOST = {"lost_frames": "0", "new_epochs_count": "0"}
#: Lines of a kind that carefuld logs at once, before one a minute (log.h).
LOG_BURST = 20
#: How often a round is repeated that came too late.
TRIES = 10


class Missed(Exception):  # noqa: N818
    """A transfer ended before the fault could strike, so nothing was tested."""


class Met(NamedTuple):
    """A transfer that met a fault: its hosts, its victim, its result and its end."""

    asker: Host
    server: Host
    victim: Host
    how: str
    end_s: float  # after the fault began


def meet(ground: Ground, fault: Fault, rng: random.Random) -> Met:
    """A transfer that meets the fault, and one next to it."""
    first, second, bystander = ground.hosts
    asker, server = rng.sample((first, second), 2)
    get = rng.random() < 0.5
    source, target = (server, asker) if get else (asker, server)
    ends = {"source": source, "target": target}
    victim = ends.get(fault.victim) or rng.choice((first, second))
    other = second if victim is first else first
    ground.clear()
    # A session with a host that was restarted would begin again in the middle.
    bystander.ctl("ls", f"{other.name}:")
    with fault.place(ground, victim) if fault.place else contextlib.nullcontext():
        copy = (target.own if get else target.export) / fault.target
        seen = ground.apart.seen(copy)
        told: list[str | Path] = ["get", f"{server.name}:{fault.source}", copy]
        if not get:
            told = ["put", asker.export / fault.source, f"{server.name}:{fault.target}"]
        here = bystander.own / "copy"
        with (
            ground.slowly(),
            moving(bystander, 4, "get", f"{other.name}:{EXPORTED}", here, "--json") as beside,
            moving(asker, 2, *told, *fault.options) as met,
        ):
            reached(beside, 0)
            reached(met, rng.uniform(0, SHARE_MAX))
            if met.poll() is not None or beside.poll() is not None:
                for one in (met, beside):
                    status, _, errors = finish(one, BOUND_S)
                    assert status == 0, errors
                raise Missed
            struck = time.monotonic()
            fault.hit(ground, victim, rng)
            late = fault.ends and met.poll() == 0
            status, _, errors = finish(met, BOUND_S)
            end_s = time.monotonic() - struck
            beside_status, said, line = finish(beside, BOUND_S)
            if late:  # the transfer ended before the fault
                raise Missed
        assert "Traceback" not in errors, errors
        assert status == 0 or (status in (1, 3) and errors.count("\n") == 1), errors
        assert status != 0 or not fault.ends, "it cannot be done"
        if status:
            assert fault.said, errors
            assert re.search(fault.said, errors), errors
            # If only the answer was lost, the target is whole.
            there = seen.exists()
            assert not there or seen.read_bytes() == ground.held[source.name], (
                "a target that is not whole"
            )
        elif not fault.changes_source:
            assert seen.read_bytes() == ground.held[source.name], "wrong bytes"
    assert beside_status == 0, f"the pair beside it: {line}"
    assert here.read_bytes() == ground.held[other.name], "the pair beside it: wrong bytes"
    counted = dict(re.findall(r'"(lost_frames|new_epochs_count)": (\d+)', said))
    assert fault.everywhere or counted == NOTHING_LOST, f"the pair beside it: {counted}"
    ended = reason(errors) + ", but all was there" * there if status else "done"
    return Met(asker, server, victim, ended, end_s)


@contextlib.contextmanager
def moving(host: Host, seconds: int, *told: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a slow transfer that reports progress and ends with the block."""
    paced = ("--block-bytes", "64KiB", "--rate-limit", f"{FILE_BYTES // seconds // 1024}KiB")
    process = host.start(*told, *paced, "-q", "--progress-fd", "1")
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def reached(process: subprocess.Popen[str], share: float) -> None:
    """Waits until more than this share of the file has moved, or the transfer has ended."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    moved, lines = 0, [b""]
    while moved <= share * FILE_BYTES:
        assert select.select([pipe], [], [], BOUND_S)[0], "nothing moves"
        more = os.read(pipe, 1 << 16)  # the last line counts
        if not more:
            return
        lines = (lines[-1] + more).split(b"\n")
        if len(lines) > 1:
            moved = json.loads(lines[-2])["moved_bytes"]


def reason(errors: str) -> str:
    """Returns a line without the parts that differ between rounds."""
    text = errors.strip().removeprefix("carefulctl: ").split(";")[0]
    text = re.sub(r"/\S+/", "", text)
    return "failed: " + re.sub(r"\b(h[123]:|\d+|t\d+-\d+-)", "", text)[:90].strip(" :")


def check_next(ground: Ground, asker: Host, server: Host) -> float:
    """Checks the next transfers, both ways. Returns the longer time, seconds."""
    for host in (asker, server):
        ground.make_sure(host)
    back = asker.own / "next"
    began = time.monotonic()
    asker.ctl("get", "-f", f"{server.name}:{EXPORTED}", back)
    turned = time.monotonic()
    assert back.read_bytes() == ground.held[server.name], "the next get"
    asker.ctl("put", "-f", back, f"{server.name}:next")
    ended = time.monotonic()
    assert (server.export / "next").read_bytes() == ground.held[server.name], "the next put"
    return max(turned - began, ended - turned)


def since_start(host: Host) -> int:
    """Counts the lines that carefuld has logged since its start, without transfers."""
    lines = host.log.rpartition(" export ")[2].splitlines()[1:]
    return sum(not re.search(r" bytes (read|written) in ", line) for line in lines)


def check_logs(fault: Fault, before: dict[Host, str]) -> None:
    """Checks that one of the two carefulds has logged the fault's pattern.

    Not for carefulds that have logged so much that they leave lines out.
    """
    if not fault.logged or any(since_start(host) >= LOG_BURST for host in before):
        return

    def logged() -> bool:
        new = (host.log.removeprefix(old) for host, old in before.items())
        return any(re.search(fault.logged, text) for text in new)

    wait_for(logged, f"word of it in a log ({fault.logged})", 10)


def play(ground: Ground, name: str, rng: random.Random) -> tuple[str, float, float]:
    """Plays a round. Returns how and when the transfer ended, and check_next()'s time.

    Raises:
        AssertionError: a promise was broken.
    """
    fault = FAULTS[name]
    before, logs = ground.opened(), {host: host.log for host in ground.hosts[:2]}
    try:
        for _ in range(TRIES):
            with contextlib.suppress(Missed):
                met = meet(ground, fault, rng)
                break
        else:
            raise AssertionError("over before the fault, each time")
        if fault.after is not None:
            fault.after(ground, met.victim)
        next_s = check_next(ground, met.asker, met.server)
        check_logs(fault, logs)
        ground.check_round(before, fault.descriptors)
    except BaseException:
        for host in ground.hosts[:2]:
            old_address(host)
        raise
    finally:
        ground.set_right()
    return met.how, met.end_s, next_s


def run(names: list[str], rounds: int, rng: random.Random, keep: Keep) -> list[str]:
    """Plays faults in turn. Returns what is left of the carefulds.

    Args:
        names: of FAULTS.
        rounds: in total.
        rng: draws everything.
        keep: called with the result of each round.
    """
    lab = Lab(hosts=3)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ground = Ground(lab, Path(folder))
            for k in range(rounds):
                name = names[k % len(names)]
                try:
                    keep(name, *play(ground, name, rng))
                except (AssertionError, subprocess.SubprocessError) as error:
                    print(f"round {k}, {name}: {error}", file=sys.stderr, flush=True)
                    keep(name, f"BROKEN: {error}", 0, 0)
            return ground.close()
        finally:
            lab.down()


def main() -> int:
    """Many rounds; the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="all faults together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument(
        "--report", type=Path, help="JSON, by commit; what is there already is added to"
    )
    options = parser.parse_args()
    os.environ["CAREFUL_OUTLAST"] = "0s"  # the result is checked later
    report: dict[str, Any] = {"schema": 3, "commits": {}}
    if options.report and options.report.exists():
        report = json.loads(options.report.read_text())
        if report["schema"] != 3:
            parser.error(f"{options.report} is of an earlier kind: its commits are mixed")
    found = report["commits"].setdefault(commit(), {"runs": [], "faults": {}})
    this: dict[str, Any] = {"seed": options.seed, "rounds": 0}
    found["runs"].append(this)
    seen: Counter[str] = Counter()

    def keep(name: str, how: str, end_s: float, next_s: float) -> None:
        new = {"rounds": 0, "end_s_max": 0, "next_s_max": 0, "ended": {}}
        one = found["faults"].setdefault(name, new)
        how = how.splitlines()[0]
        one["rounds"] += 1
        for key, value in (("end_s_max", end_s), ("next_s_max", next_s)):
            one[key] = max(one[key], round(value, 1))
        one["ended"][how] = one["ended"].get(how, 0) + 1
        this["rounds"] += 1
        seen[f"{name:20}  {how}"] += 1

    this["left"] = run(options.faults, options.rounds, random.Random(options.seed), keep)
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    for line, count in sorted(seen.items()):
        print(f"{count:5}  {line}")
    print(f"{this['rounds']} rounds; left behind: {', '.join(this['left']) or 'nothing'}")
    return any("BROKEN" in line for line in seen) or bool(this["left"])


if __name__ == "__main__":
    sys.exit(main())
