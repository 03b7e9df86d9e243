"""Injects faults into real carefulds at random instants, and checks that they recover.

In a round two transfers begin; one of them is between hosts that the fault does not touch. The
fault strikes when a random share of the other transfer's bytes has moved. Both commands must end in
bounded time: the undisturbed one successfully, the other successfully or with one error line. The
next transfers must succeed. `python tests/support/faults.py --rounds 200` runs many rounds and
writes a report; test_faults.py runs each fault once.
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

from fault_kinds import FAULTS, Fault, restore_address
from fault_rig import EXPORTED, FILE_BYTES, FaultRig
from hosts import Host, finish, wait_for
from lab import Lab, made

Keep = Callable[[str, str, float, float], None]
#: An operation without an answer gives up after 30 s (--stall).
BOUND_S = 45
#: The largest share of a file that has moved when a fault strikes.
SHARE_MAX = 0.7


NOTHING_LOST = {"lost_frames": "0", "new_epochs_count": "0"}
#: carefuld logs this many lines of a kind at once, then one a minute (log.h).
LOG_BURST = 20
#: Most attempts at a round whose transfer ends before the fault.
TRIES = 10


class TooLate(Exception):  # noqa: N818
    """A transfer ended before the fault could strike, so nothing was tested."""


class FaultedTransfer(NamedTuple):
    """A transfer during which a fault struck."""

    asker: Host
    server: Host
    victim: Host
    outcome: str
    end_s: float  # from the fault to the transfer's end


def transfer_with_fault(rig: FaultRig, fault: Fault, rng: random.Random) -> FaultedTransfer:
    """Runs a transfer that the fault hits, and an undisturbed transfer at the same time."""
    first, second, bystander = rig.hosts
    asker, server = rng.sample((first, second), 2)
    get = rng.random() < 0.5
    source, target = (server, asker) if get else (asker, server)
    ends = {"source": source, "target": target}
    victim = ends.get(fault.victim) or rng.choice((first, second))
    other = second if victim is first else first
    rig.clear()
    # Renews the session now if the host was restarted, not during the transfer.
    bystander.ctl("ls", f"{other.name}:")
    with fault.prepare(rig, victim) if fault.prepare else contextlib.nullcontext():
        copy = (target.own if get else target.export) / fault.target
        seen = rig.namespace.seen(copy)
        words: list[str | Path] = ["get", f"{server.name}:{fault.source}", copy]
        if not get:
            words = ["put", asker.export / fault.source, f"{server.name}:{fault.target}"]
        copied = bystander.own / "copy"
        with (
            rig.small_fragments(),
            moving(
                bystander, 4, "get", f"{other.name}:{EXPORTED}", copied, "--json"
            ) as undisturbed,
            moving(asker, 2, *words, *fault.options) as faulted,
        ):
            reached(undisturbed, 0)
            reached(faulted, rng.uniform(0, SHARE_MAX))
            if faulted.poll() is not None or undisturbed.poll() is not None:
                for one in (faulted, undisturbed):
                    status, _, errors = finish(one, BOUND_S)
                    assert status == 0, errors
                raise TooLate
            struck = time.monotonic()
            fault.inject(rig, victim, rng)
            late = fault.ends and faulted.poll() == 0
            status, _, errors = finish(faulted, BOUND_S)
            end_s = time.monotonic() - struck
            bystander_status, report, line = finish(undisturbed, BOUND_S)
            if late:  # the transfer ended before the fault
                raise TooLate
        assert "Traceback" not in errors, errors
        assert status == 0 or (status in (1, 3) and errors.count("\n") == 1), errors
        assert status != 0 or not fault.ends, "the transfer succeeded in spite of the fault"
        if status:
            assert fault.error, errors
            assert re.search(fault.error, errors), errors
            # If only the answer was lost, the target is whole.
            is_whole = seen.exists()
            assert not is_whole or seen.read_bytes() == rig.contents[source.name], (
                "the target is not whole"
            )
        elif not fault.changes_source:
            assert seen.read_bytes() == rig.contents[source.name], "wrong bytes"
    assert bystander_status == 0, f"the undisturbed pair: {line}"
    assert copied.read_bytes() == rig.contents[other.name], "the undisturbed pair: wrong bytes"
    counted = dict(re.findall(r'"(lost_frames|new_epochs_count)": (\d+)', report))
    assert fault.hits_bystander or counted == NOTHING_LOST, f"the undisturbed pair: {counted}"
    outcome = reason(errors) + ", but the target is whole" * is_whole if status else "done"
    return FaultedTransfer(asker, server, victim, outcome, end_s)


@contextlib.contextmanager
def moving(host: Host, seconds: int, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a slow transfer that reports progress and ends with the block."""
    paced = ("--block-bytes", "64KiB", "--rate-limit", f"{FILE_BYTES // seconds // 1024}KiB")
    process = host.start(*words, *paced, "-q", "--progress-fd", "1")
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


def check_next(rig: FaultRig, asker: Host, server: Host) -> float:
    """Checks the next transfers, both ways. Returns the longer time, seconds."""
    for host in (asker, server):
        rig.ensure_up(host)
    back = asker.own / "next"
    began = time.monotonic()
    asker.ctl("get", "-f", f"{server.name}:{EXPORTED}", back)
    turned = time.monotonic()
    assert back.read_bytes() == rig.contents[server.name], "the next get"
    asker.ctl("put", "-f", back, f"{server.name}:next")
    ended = time.monotonic()
    assert (server.export / "next").read_bytes() == rig.contents[server.name], "the next put"
    return max(turned - began, ended - turned)


def since_start(host: Host) -> int:
    """Counts the lines that carefuld has logged since its start, without transfers."""
    lines = host.log.rpartition(" export ")[2].splitlines()[1:]
    return sum(not re.search(r" bytes (read|written) in ", line) for line in lines)


def check_logs(fault: Fault, before: dict[Host, str]) -> None:
    """Checks that one of the two carefulds has logged the fault's pattern.

    Skips the check if a carefuld has logged so much that it may omit lines.
    """
    if not fault.logged or any(since_start(host) >= LOG_BURST for host in before):
        return

    def logged() -> bool:
        new = (host.log.removeprefix(old) for host, old in before.items())
        return any(re.search(fault.logged, text) for text in new)

    wait_for(logged, f"log line matching {fault.logged!r}", 10)


def play(rig: FaultRig, name: str, rng: random.Random) -> tuple[str, float, float]:
    """Plays a round. Returns the transfer's outcome and end, and check_next()'s time, seconds.

    Raises:
        AssertionError: a promise was broken.
    """
    fault = FAULTS[name]
    before, logs = rig.opened(), {host: host.log for host in rig.hosts[:2]}
    try:
        for _ in range(TRIES):
            with contextlib.suppress(TooLate):
                faulted = transfer_with_fault(rig, fault, rng)
                break
        else:
            raise AssertionError(f"{TRIES} transfers ended before the fault")
        if fault.check is not None:
            fault.check(rig, faulted.victim)
        next_s = check_next(rig, faulted.asker, faulted.server)
        check_logs(fault, logs)
        rig.check_round(before, fault.descriptors)
    except BaseException:
        for host in rig.hosts[:2]:
            restore_address(host)
        raise
    finally:
        rig.restore_all()
    return faulted.outcome, faulted.end_s, next_s


def run(names: list[str], rounds: int, rng: random.Random, keep: Keep) -> list[str]:
    """Plays faults in turn. Returns the leftovers of the carefulds.

    Args:
        names: of FAULTS.
        rounds: in total.
        rng: draws everything.
        keep: receives the result of each round.
    """
    lab = Lab(hosts=3)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rig = FaultRig(lab, Path(folder))
            for k in range(rounds):
                name = names[k % len(names)]
                try:
                    keep(name, *play(rig, name, rng))
                except (AssertionError, subprocess.SubprocessError) as error:
                    print(f"round {k}, {name}: {error}", file=sys.stderr, flush=True)
                    keep(name, f"BROKEN: {error}", 0, 0)
            return rig.close()
        finally:
            lab.down()


def main() -> int:
    """Plays many rounds and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="all faults together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument(
        "--report", type=Path, help="JSON file, by commit; new rounds are added to it"
    )
    options = parser.parse_args()
    os.environ["CAREFUL_OUTLAST"] = "0s"  # the result is checked later
    report: dict[str, Any] = {"schema": 3, "commits": {}}
    if options.report and options.report.exists():
        report = json.loads(options.report.read_text())
        if report["schema"] != 3:
            parser.error(f"{options.report} has an older schema that mixes commits")
    found = report["commits"].setdefault(made()["commit"], {**made(), "runs": [], "faults": {}})
    this: dict[str, Any] = {"seed": options.seed, "rounds": 0}
    found["runs"].append(this)
    seen: Counter[str] = Counter()

    def keep(name: str, outcome: str, end_s: float, next_s: float) -> None:
        new = {"rounds": 0, "end_s_max": 0, "next_s_max": 0, "ended": {}}
        one = found["faults"].setdefault(name, new)
        outcome = outcome.splitlines()[0]
        one["rounds"] += 1
        for key, value in (("end_s_max", end_s), ("next_s_max", next_s)):
            one[key] = max(one[key], round(value, 1))
        one["ended"][outcome] = one["ended"].get(outcome, 0) + 1
        this["rounds"] += 1
        seen[f"{name:20}  {outcome}"] += 1

    this["left"] = run(options.faults, options.rounds, random.Random(options.seed), keep)
    if options.report:
        options.report.write_text(json.dumps(report, indent=1) + "\n")
    for line, count in sorted(seen.items()):
        print(f"{count:5}  {line}")
    print(f"{this['rounds']} rounds; left behind: {', '.join(this['left']) or 'nothing'}")
    return any("BROKEN" in line for line in seen) or bool(this["left"])


if __name__ == "__main__":
    sys.exit(main())
