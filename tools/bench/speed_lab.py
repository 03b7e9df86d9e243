"""The lab of tools/bench/run: two hosts, one core each, and what is run on them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench_lab import LAB, ROOT, BenchError

CLIENT, SERVER = "h1", "h2"
SERVER_IP = "10.77.0.2"
CPU = {CLIENT: 0, SERVER: 1}
CAREFULCTL = ROOT / ".venv" / "bin" / "carefulctl"
#: Of busiest(): how often it looks, and what it looks for.
LOOK_S, SPAN_S = 0.05, 0.5


def run(*argv: str | Path, timeout_s: float = 120, env: dict[str, str] | None = None) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        [str(a) for a in argv],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **(env or {})},
    )
    if done.returncode:
        why = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise BenchError(f"{Path(str(argv[0])).name}: {why[-1]}")
    return done.stdout


def on(host: str, *argv: str | Path) -> list[str]:
    """The command line for one of the lab's hosts, on its core."""
    lab = str(ROOT / "tools" / "lab")
    pinned = ["taskset", "-c", str(CPU[host]), *map(str, argv)]
    return [lab, "exec", "--name", LAB, host, "--", *pinned]


@contextlib.contextmanager
def beside(
    host: str, *argv: str | Path, ready: str = "", env: dict[str, str] | None = None
) -> Iterator[None]:
    """A server that lives as long as the block; `ready`: text to wait for."""
    server = subprocess.Popen(
        on(host, *argv),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
    )
    try:
        assert server.stdout
        line = server.stdout.readline() if ready else ""
        if ready not in line:
            raise BenchError(f"{argv[0]}: {line.strip()}")
        time.sleep(0.0 if ready else 0.3)
        yield
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(5)
        server.kill()
        server.wait()


@contextlib.contextmanager
def daemon(host: str, xdp: str, *options: str) -> Iterator[None]:
    """A carefuld on the host's core."""
    command = [str(CAREFULCTL), "up", "eth1", "--xdp", xdp, "--cpu", str(CPU[host]), *options]
    run(*on(host, *command))
    try:
        yield
    finally:
        run(*on(host, CAREFULCTL, "down", "eth1"))


def busy_s() -> dict[str, float]:
    """Seconds that each host's core was busy since the machine began: with what, is all one."""
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        for host, cpu in CPU.items():
            if name == f"cpu{cpu}":
                user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
                found[host] = (user + nice + system + irq + softirq) / tick
    return found


def share_of(seen: list[tuple[float, dict[str, float]]]) -> dict[str, float]:
    """Which part of the busiest half second each host's core was busy, by looks at busy_s()."""
    spans = [
        (at - began, before, then)
        for began, before in seen
        for at, then in seen
        if SPAN_S <= at - began < 2 * SPAN_S
    ]
    return {host: max((then[host] - now[host]) / s for s, now, then in spans) for host in CPU}


@contextlib.contextmanager
def busiest() -> Iterator[dict[str, float]]:
    """share_of() the block, at its end; the block takes longer than half a second.

    A stream begins some time after its program, and its program ends some time after it.
    """
    seen = [(time.monotonic(), busy_s())]
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_S):
            seen.append((time.monotonic(), busy_s()))

    looks = threading.Thread(target=look)
    share: dict[str, float] = {}
    looks.start()
    try:
        yield share
    finally:
        ended.set()
        looks.join()
    share.update(share_of(seen))


def stream_costs(name: str, gbit: float, share: dict[str, float]) -> dict[str, float]:
    """A stream's rate, and what a GiB of it takes of each core, by busiest()."""
    gib_s = (8 << 30) / 1e9 / gbit
    return {
        f"{name}_gbit": gbit,
        f"cpu_{name}_client_s": share[CLIENT] * gib_s,
        f"cpu_{name}_server_s": share[SERVER] * gib_s,
    }
