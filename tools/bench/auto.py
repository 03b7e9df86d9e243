"""Runs `tune auto` on a path of the lab under live messages until it has decided.

Then compares what it left in effect with other settings, for `tools/bench/run regret --auto`. h1
reads messages from a file of h2, whose carefuld cuts them and is tuned.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench_lab import (
    HOSTS,
    LAB,
    PYTHON,
    RUN,
    STORES,
    BenchError,
    ctl,
    daemons,
    given_as,
    on,
    pinned,
    process,
    run,
    untuned_bytes,
)

#: The hosts, as they know each other: h1 reads, or writes.
ADDRESSES = {"h1": "10.77.0.1", "h2": "10.77.0.2"}
READER = ADDRESSES["h1"]
#: Two hosts that are tuned for writes are calm after so long without a decision, seconds.
CALM_S = 40.0
#: How often to look whether it has decided, seconds.
LOOK_S = 1.0
CLASS_BYTES_FIRST = 64


def class_of(nbytes: int) -> int:
    """The class of messages of a size."""
    return max(0, (nbytes - 1).bit_length() - CLASS_BYTES_FIRST.bit_length() + 1)


@contextmanager
def careful_up(*options: object) -> Iterator[None]:
    """Starts careful on both hosts, which know nothing of the path."""
    for host in HOSTS:
        run(*on(host, "sh", "-c", 'rm -rf "$CAREFUL_STATE_DIR"'))
    with daemons("--peers", 2, *options):
        yield


def known(host: str = "h2", peer: str = READER) -> dict[str, Any]:
    """Returns what a host's controller keeps of the path."""
    try:
        return dict(json.loads((RUN / f"{LAB}-{host}" / "tuning.json").read_text())["paths"][peer])
    except (OSError, KeyError):
        return {}


def is_decided(path: dict[str, Any], classes: set[str]) -> bool:
    """Reports whether there is nothing more to come soon of some classes."""
    if not path or path["on_trial"] or path["put_back"]:
        return False
    if classes & {str(int(item) % 16) for item in path["unverified"]}:  # plans and thresholds
        return False
    if path["figures"] is None:
        return bool(classes <= path["tried"].keys())
    return any(one["what"] in ("kept", "undone", "nothing to change") for one in path["decisions"])


def decided(sizes: list[int], limit_s: float) -> dict[str, Any]:
    """Run `tune auto` and the traffic; what is known of the path then."""
    classes = {str(class_of(nbytes)) for nbytes in sizes}
    with (
        given_as({"sizes": sizes}) as name,
        process(pinned("h1", PYTHON, STORES, "mix", name), ready="ready") as traffic,
        process(on("h2", "carefulctl", "tune", "auto", "eth1"), quiet=True) as controller,
    ):
        end = time.monotonic() + limit_s
        while not is_decided(known(), classes) and time.monotonic() < end:
            if traffic.poll() is not None or controller.poll() is not None:
                raise BenchError("the traffic or the controller has ended")
            time.sleep(LOOK_S)
        return {**known(), "decided": is_decided(known(), classes)}


def _is_calm(path: dict[str, Any]) -> bool:
    """Reports whether a path was decided on, and nothing was since."""
    if not path or path["on_trial"] or path["put_back"] or not path["decisions"]:
        return False
    return bool(time.monotonic() - path["decisions"][-1]["at_s"] > CALM_S)


def tuned_writes(sizes: list[int], limit_s: float) -> tuple[bool, dict[int, tuple[int, int]]]:
    """Run `tune auto` on both hosts under h1's writes into h2's file: whether both have decided,
    and of each size the frame of h1 and the least write of h2 that they left in effect.
    """
    pairs = (("h1", ADDRESSES["h2"]), ("h2", ADDRESSES["h1"]))
    with ExitStack() as stack:
        name = stack.enter_context(given_as({"sizes": sizes, "write": True}))
        mix = pinned("h1", PYTHON, STORES, "mix", name)
        processes = [stack.enter_context(process(mix, ready="ready"))]
        for host, _ in pairs:
            argv = on(host, "carefulctl", "tune", "auto", "eth1")
            processes.append(stack.enter_context(process(argv, quiet=True)))
        end, over = time.monotonic() + limit_s, False
        while not over and time.monotonic() < end:
            if any(one.poll() is not None for one in processes):
                raise BenchError("the traffic or a controller has ended")
            time.sleep(LOOK_S)
            store = known("h2", ADDRESSES["h1"]).get("store") or {}
            over = bool(store.get("told_apart")) and all(_is_calm(known(*one)) for one in pairs)
    rows = [
        next(iter(ctl(host, "tune", "show", "eth1", "--peer", peer)["peers"]))
        for host, peer in pairs
    ]
    found = {}
    for nbytes in sizes:
        ours, theirs = (row["classes"][class_of(nbytes)] for row in rows)
        found[nbytes] = (ours["plan"]["first_bytes"], theirs["minpulse_bytes"]["store"])
    return over, found


def in_effect() -> tuple[int, list[dict[str, Any]]]:
    """h1's slot in h2's tune map, and of each class the plan and netTx's least pulse."""
    (row,) = ctl("h2", "tune", "show", "eth1", "--peer", READER)["peers"]
    return int(row["slot"]), [
        {"plan": one["plan"], "net_tx": one["minpulse_bytes"]["net_tx"]} for one in row["classes"]
    ]


def swept(
    sizes: list[int],
    arms: Callable[[int, dict[str, Any], int], list[dict[str, Any]]],
    rounds: int,
    limit_s: float,
) -> dict[str, Any]:
    """Returns what was decided, and the sweep of each size.

    arms: of a size, what is in effect of its class, and a frame's payload.
    """
    with (
        tempfile.TemporaryDirectory(prefix="careful-auto-") as folder,
        careful_up("--export", folder),
    ):
        (Path(folder) / "file").write_bytes(bytes(max(sizes)))
        path = decided(sizes, limit_s)
        (slot, now), payload_bytes, found = in_effect(), untuned_bytes("h2"), []
        for nbytes in sizes:
            size = {"bytes": nbytes, "arms": arms(nbytes, now[class_of(nbytes)], payload_bytes)}
            given = {"instance": f"{LAB}-h2", "slot": slot, "rounds": rounds, "sizes": [size]}
            with given_as(given) as name:
                found.append(json.loads(run(*pinned("h1", PYTHON, STORES, "read", name))))
    names = ("decided", "tried", "decisions", "unverified")
    return {
        "known": {name: path.get(name) for name in names},
        "measured": bool(path.get("figures")),
        "in_effect": now,
        "sizes": found,
    }
