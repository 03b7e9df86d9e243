"""Faults on real carefulds at random instants, and whether all is well afterwards.

One round: two transfers begin, one of them between hosts that the fault does not
touch; at a random instant something breaks; each command must end in bounded time,
right or with one line; then the next transfer must be right. `python tests/faults.py
--rounds 200` runs many and writes what happened; test_faults.py runs each fault once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from breaks import FAULTS, Fault
from ground import EXPORTED, Ground
from hosts import PINS, RUN, Host, finish
from lab import Lab

Keep = Callable[[str, str], None]
#: An operation that hears nothing gives up after 30 s (--stall-ms).
BOUND_S = 45


def meet(ground: Ground, fault: Fault, rng: random.Random) -> tuple[Host, Host, str]:
    """A transfer that meets the fault, and one beside it; who asked whom, and what it said."""
    first, second, bystander = ground.hosts
    asker, server = rng.sample((first, second), 2)
    get = rng.random() < 0.5
    source, target = (server, asker) if get else (asker, server)
    ends = {"source": source, "target": target}
    victim = ends.get(fault.victim) or rng.choice((first, second))
    other = second if victim is first else first
    ground.clear()
    with fault.place(ground, victim) if fault.place else contextlib.nullcontext():
        copy = (target.own if get else target.export) / fault.target
        seen = ground.apart.seen(copy)
        told = ["get", f"{server.name}:{fault.source}", copy]
        if not get:
            told = ["put", asker.export / fault.source, f"{server.name}:{fault.target}"]
        with ground.slowly():
            slowly = ("--block-bytes", "64KiB")
            here = bystander.own / "copy"
            beside = bystander.start("get", *slowly, f"{other.name}:{EXPORTED}", here)
            met = asker.start(*told, *slowly, *fault.options, "-q", "--progress", "1")
            begun(met)
            time.sleep(rng.uniform(0, 1))
            fault.hit(ground, victim, rng)
        status, _, errors = finish(met, BOUND_S)
        beside_status, _, line = finish(beside, BOUND_S)
        assert "Traceback" not in errors, errors
        assert status == 0 or (status in (1, 3) and errors.count("\n") == 1), errors
        assert status == 0 or fault.said, errors
        if status:
            assert re.search(fault.said, errors), errors
            assert not seen.exists(), "a target that is not whole"
        elif not fault.changes_source:
            assert seen.read_bytes() == ground.held[source.name], "wrong bytes"
    if not fault.touches_all:
        assert beside_status == 0, f"the pair beside it: {line}"
        assert here.read_bytes() == ground.held[other.name]
    return asker, server, "done" if status == 0 else reason(errors)


def begun(met: subprocess.Popen[str]) -> None:
    """Wait until something has moved, or all is over: --progress says so."""
    assert met.stdout is not None
    assert select.select([met.stdout], [], [], BOUND_S)[0], "nothing moves"
    met.stdout.readline()


def reason(errors: str) -> str:
    """A line without what differs from one round to the next."""
    text = errors.strip().removeprefix("carefulctl: ").split(";")[0]
    text = re.sub(r"/\S+/", "", text)
    return "failed: " + re.sub(r"\b(h[123]:|\d+|t\d+-\d+-)", "", text)[:90].strip(" :")


def check_next(ground: Ground, asker: Host, server: Host) -> None:
    """The next transfers are right, both ways, and nothing is left of the last."""
    for host in (asker, server):
        ground.make_sure(host)
    back = asker.own / "next"
    asker.ctl("get", "-f", f"{server.name}:{EXPORTED}", back)
    assert back.read_bytes() == ground.held[server.name], "the next get"
    asker.ctl("put", "-f", back, f"{server.name}:next")
    assert (server.export / "next").read_bytes() == ground.held[server.name], "the next put"


def play(ground: Ground, name: str, rng: random.Random) -> str:
    """One round; how the transfer that met the fault ended.

    Raises:
        AssertionError: something was not as promised.
    """
    fault = FAULTS[name]
    try:
        asker, server, how = meet(ground, fault, rng)
        if fault.after is not None:
            fault.after(ground)
        check_next(ground, asker, server)
    finally:
        ground.set_right()
    return how


def left_over(ground: Ground) -> list[str]:
    """What is still there of carefulds that are down."""
    found: list[Path] = []
    for host in ground.hosts:
        one = ground.lab.instance(host.name)
        found += [ground.apart.seen(PINS / one), RUN / one / "sock"]
    return [str(path) for path in found if path.exists()]


def run(names: list[str], rounds: int, rng: random.Random, keep: Keep) -> list[str]:
    """Faults in turn; what is left of the carefulds in the end.

    Args:
        names: of FAULTS.
        rounds: how many, all together.
        rng: draws everything.
        keep: told of each round how it ended.
    """
    lab = Lab(hosts=3)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ground = Ground(lab, Path(folder))
            before = ground.descriptors()
            for k in range(rounds):
                name = names[k % len(names)]
                try:
                    how = play(ground, name, rng)
                except (AssertionError, subprocess.SubprocessError) as error:
                    how = f"BROKEN: {error}"
                    print(f"round {k}, {name}: {how}", file=sys.stderr, flush=True)
                    ground.set_right()
                keep(name, how)
            grown = ground.descriptors() - before
            ground.down()
            left = left_over(ground) + ([f"{grown} descriptors of h3"] if grown > 2 else [])
            ground.close()
            return left
        finally:
            lab.down()


def main() -> int:
    """Many rounds; the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="all faults together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--report", type=Path, help="JSON, written after each round")
    options = parser.parse_args()
    seen: dict[str, Counter[str]] = {name: Counter() for name in options.faults}
    found = {"schema": 1, "seed": options.seed, "rounds": 0, "faults": seen, "left": []}

    def keep(name: str, how: str) -> None:
        seen[name][how.splitlines()[0]] += 1
        found["rounds"] = sum(count.total() for count in seen.values())
        if options.report:
            options.report.write_text(json.dumps(found, indent=1) + "\n")

    found["left"] = run(options.faults, options.rounds, random.Random(options.seed), keep)
    if options.report:
        options.report.write_text(json.dumps(found, indent=1) + "\n")
    for name, counts in seen.items():
        for how, count in counts.most_common():
            print(f"{name:20} {count:5}  {how}")
    print(f"{found['rounds']} rounds; left behind: {', '.join(found['left']) or 'nothing'}")
    broken = any(how.startswith("BROKEN") for counts in seen.values() for how in counts)
    return broken or bool(found["left"])


if __name__ == "__main__":
    sys.exit(main())
