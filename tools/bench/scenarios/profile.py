"""Shows where the time of a `get`, a `get -r`, a stream of stores and round trips goes.

For the first three it gives the seconds of a core by what the core did; for a stream, by function.
perf samples both cores by a timer, so the kernel's work with interrupts off counts for what comes
after it. A timer would fall into step with round trips: of these tools/bench/stages.c notes
when each end saw frames, and when it sent. Two hosts of a lab, one core each; nothing else should
run. Owns the lab. Needs root, and perf.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_lab import (
    CLIENT,
    CPU,
    CTL,
    SERVER,
    SERVER_IP,
    beside,
    big_file,
    built,
    daemons,
    lab_up,
    pinned,
    run,
)

ROUNDS = 3

FREQUENCY = 9973
TRANSFERS = ("get", "get -r", "stream")
#: Stores of 1 MiB from memory to memory, one after the other, for so long.
STREAM_MS = 8000
XDP = "native"
NBYTES, FILES, FILE_BYTES = 1 << 30, 10_000, 4096
#: Round trips of tools/bench/stages.c: bytes, and what is compared of them.
TRIPS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (64, ("bare", "read", "request")),
    (1024, ("bare", "read", "request")),
    (3072, ("bare", "read", "request")),
    (8192, ("bare", "read", "store")),
    (8192, ("bare-block", "read-block", "get-warm", "get-plain", "get")),
    (8192, ("block-warm", "block-plain", "block")),
)
TRIPS_COUNT = 50_000
STAGES = ("ask", "there", "answer", "back", "take", "trip")
MODES = ("native", "generic")
#: Tables leave out less than this.
LEAST_S, LEAST_SHARE = 0.005, 0.001
#: Until perf samples, after it has begun.
SETTLE_S = 0.5
#: Groups of samples: the first pattern that matches a kernel function of the stack decides. A frame
#: is received within the call that sent it, so `receive` comes first.
GROUPS = (
    ("receive", r"net_rx_action|__napi_poll"),
    ("send", r"xsk_.*(sendmsg|xmit)"),
    ("file read", r"\b(do_|vfs_)?preadv|vfs_readv|filemap_read|shmem_file_read"),
    ("file write", r"pwritev|vfs_writev|shmem_.*write|generic_perform_write"),
    ("files made", r"sys_(openat|openat2|linkat|close|utimensat|fchmod|ftruncate|mkdir|rename)"),
    ("io_uring", r"io_uring|io_wq"),
    ("waits", r"sys_(p?poll|ppoll|epoll_p?wait|futex|select)"),
    ("start", r"execve|sys_mmap|exc_page_fault|asm_exc_page_fault|exit_mmap|do_exit"),
)
#: Likewise of functions that are not the kernel's.
OWN_GROUPS = (("digest", r"xxh3|XXH"), ("check", r"crc32c"), ("copy", r"mem(cpy|move)"))


def group(stack: list[tuple[str, str]]) -> str:
    """Returns the group of a sample's stack; the innermost function comes first."""
    kernel = [
        name for name, dso in stack if "kernel" in dso or dso.startswith("bpf") or "[k" in dso
    ]
    if kernel and (stack[0][0] in kernel):
        for what, pattern in GROUPS:
            if any(re.search(pattern, name) for name in kernel):
                return what
        return "kernel, other"
    for what, pattern in OWN_GROUPS:
        if re.search(pattern, stack[0][0]):
            return what
    return f"own {stack[0][0]}"


def samples(text: str) -> Counter[tuple[int, str, str]]:
    """Of `perf script`: how many, by core, program and group."""
    found: Counter[tuple[int, str, str]] = Counter()
    for block in text.split("\n\n"):
        head, *lines = block.strip().splitlines() or [""]
        match = re.match(r"(.+?)\s+\[(\d+)\]", head)
        if not match or not lines:
            continue
        stack = []
        for line in lines:
            one = re.match(r"\s*[0-9a-f]+ (.+?)(?:\+0x[0-9a-f]+)? \((.*)\)$", line)
            if one:
                stack.append((one[1], one[2]))
        if stack and not match[1].startswith("swapper"):
            found[int(match[2]), match[1], group(stack)] += 1
    return found


@contextlib.contextmanager
def watched(rows: list[Any]) -> Iterator[None]:
    """Samples of both cores while the block runs; rows gets them."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        cores = ",".join(map(str, CPU.values()))
        argv = ["perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", str(FREQUENCY)]
        argv += ["-C", cores, "-o", str(data), "--", "sleep", "600"]
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as perf:
            try:
                while not data.exists() and perf.poll() is None:
                    time.sleep(0.01)
                time.sleep(SETTLE_S)
                yield
            finally:
                subprocess.run(["pkill", "-P", str(perf.pid), "-x", "sleep"], check=False)
                perf.wait(60)
        words = ["perf", "script", "-F", "comm,cpu,ip,sym,dso", "-i", str(data)]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=True)
        host = {cpu: name for name, cpu in CPU.items()}
        for (cpu, comm, what), count in samples(done.stdout).items():
            rows.append([host[cpu], comm, what, count])


def transfers(work: Path) -> dict[str, Any]:
    """A file, and a tree, each the second time."""
    found = {}
    with daemons("--xdp", XDP, "--export", work / "in", pin=True):
        for name, words in (("get", ["big"]), ("get -r", ["-r", "tree"])):
            rows: list[Any] = []
            for k in range(2):
                target = work / "out" / f"{words[-1]}{k}"
                target.mkdir(parents=True)
                argv: list[object] = [CTL, "get", "-q", *words[:-1]]
                argv += [f"{SERVER_IP}:{words[-1]}", target]
                if k:
                    with watched(rows):
                        began = time.monotonic()
                        run(*pinned(CLIENT, *argv))
                        took_s = time.monotonic() - began
                else:
                    run(*pinned(CLIENT, *argv))
                run("rm", "-rf", target)
            found[name] = {"took_s": took_s, "rows": rows}
    return found


def stream(passes: Path) -> dict[str, Any]:
    """Stores, each as soon as there is room."""
    env = {"CAREFUL_XDP": XDP}
    rows: list[Any] = []
    with beside(SERVER, passes, "serve", "eth1", ready="ready", env=env):
        words = pinned(CLIENT, passes, "stream", "eth1", SERVER_IP, 1 << 20, STREAM_MS)
        with watched(rows):
            began = time.monotonic()
            run(*words, env=env)
            took_s = time.monotonic() - began
    return {"took_s": took_s, "rows": rows}


def trips(stages: Path) -> list[dict[str, Any]]:
    """The stages of each kind of round trip, in both XDP modes."""
    found = []
    for mode in MODES:
        for nbytes, kinds in TRIPS:
            for kind in kinds:
                words = (kind, str(nbytes), str(TRIPS_COUNT))
                text = run(stages, *words, env={"CAREFUL_XDP": mode})
                found.append({**json.loads(text.splitlines()[-1]), "xdp": mode})
    return found


def fill(work: Path) -> None:
    """Writes the files that are got."""
    (work / "in" / "tree").mkdir(parents=True)
    big_file(work / "in" / "big", NBYTES)
    for k in range(FILES):
        (work / "in" / "tree" / str(k)).write_bytes(os.urandom(FILE_BYTES))


def measured(args: argparse.Namespace) -> dict[str, Any]:
    """All rounds."""
    found = []
    passes, stages = built("passes") / "passes", built("stages") / "stages"
    with lab_up(), tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        fill(Path(name))
        for _ in range(args.rounds):
            one = transfers(Path(name))
            found.append({**one, "stream": stream(passes), "trips": trips(stages)})
    return {"frequency": FREQUENCY, "rounds": found}


def transfers_table(rounds: list[dict[str, Any]], frequency: int) -> None:
    """Core seconds of a transfer by host, program and what it did; and those of other programs."""
    for name in TRANSFERS:
        took = statistics.median(one[name]["took_s"] for one in rounds)
        cells: dict[tuple[str, str, str], list[float]] = {}
        for k, one in enumerate(rounds):
            for host, comm, what, count in one[name]["rows"]:
                ours = comm.startswith(("careful", "iou-", "passes"))
                did = what.split()[0] if what.startswith("own") else what
                key = (host, comm.split("-")[0], did) if ours else ("", "others", "")
                cells.setdefault(key, [0.0] * len(rounds))[k] += count / frequency
        others = statistics.median(cells.pop(("", "others", ""), [0.0]))
        print(f"\n{name}: {took:.2f} s on the clock; seconds of a core (others: {others:.2f})")
        for (host, who, what), values in sorted(cells.items(), key=lambda one: -max(one[1])):
            if (seconds := statistics.median(values)) >= LEAST_S:
                side = "client" if host == CLIENT else "server"
                print(f"  {side}  {who:12} {what:14} {seconds:6.3f}")


def sender_table(rounds: list[dict[str, Any]]) -> None:
    """Prints the shares of a core that a stream's sender spends outside the kernel, by function."""
    shares: dict[str, list[float]] = {}
    for k, one in enumerate(rounds):
        rows = [row for row in one["stream"]["rows"] if row[:2] == [CLIENT, "passes"]]
        total = sum(row[3] for row in rows)
        for _, _, what, count in rows:
            if what.startswith("own ") or what in ("copy", "check"):
                shares.setdefault(what, [0.0] * len(rounds))[k] = count / total
    print("\nstream: of the sender's time, by function")
    for what, values in sorted(shares.items(), key=lambda one: -max(one[1])):
        if (share := statistics.median(values)) >= LEAST_SHARE:
            print(f"  {100 * share:5.2f} %  {what.removeprefix('own ')}")


def trips_table(rounds: list[dict[str, Any]]) -> None:
    """Prints each kind's fastest round.

    The cores of a virtual machine move, and a line of the cache is then further away.
    """
    cells: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for one in rounds:
        for row in one["trips"]:
            cells.setdefault((row["xdp"], row["bytes"], row["what"]), []).append(row)
    head = " ".join(f"{stage:>7}" for stage in STAGES)
    print(f"\nround trips, ns\n  {'':24}{head}  looks each")
    for (mode, nbytes, what), rows in cells.items():
        least = min(rows, key=lambda row: row["trip_ns"])
        values = " ".join(f"{least[f'{stage}_ns']:7.0f}" for stage in STAGES)
        print(f"  {mode:8}{nbytes:>5} {what:11}{values}  {least['round_ns']:10.0f}")


def report(kept: dict[str, Any]) -> bool:
    """Prints the tables; there is nothing to judge but that there are samples."""
    rounds = kept["rounds"]
    transfers_table(rounds, kept["frequency"])
    sender_table(rounds)
    trips_table(rounds)
    return all(one[name]["rows"] for one in rounds for name in TRANSFERS)
