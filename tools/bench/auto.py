"""Runs `tune auto` on a lab's path under live messages until it has decided.

Then compares its result with other settings, for `tools/bench/run regret --auto`. h1 reads messages
from a file of h2, whose carefuld is tuned.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench_lab import (
    HOSTS,
    LAB,
    PYTHON,
    STORES,
    BenchError,
    ctl,
    daemons,
    given_as,
    known,
    on,
    pinned,
    process,
    run,
    untuned_bytes,
)
from careful.plan import class_of

#: h1 reads.
READER = "10.77.0.1"
#: Interval between checks for a decision, seconds.
LOOK_S = 1.0


@contextmanager
def careful_up(*options: object) -> Iterator[None]:
    """Starts careful on both hosts, without figures of the path."""
    for host in HOSTS:
        run(*on(host, "sh", "-c", 'rm -rf "$CAREFUL_STATE_DIR"'))
    with daemons("--peers", 2, *options):
        yield


def is_decided(path: dict[str, Any], classes: set[str]) -> bool:
    """Reports whether the controller has decided on these classes for now."""
    if not path or path["on_trial"] or path["put_back"]:
        return False
    if classes & {str(int(item) % 16) for item in path["unverified"]}:  # plans and thresholds
        return False
    if path["figures"] is None:
        return bool(classes <= path["tried"].keys())
    return any(one["what"] in ("kept", "undone", "nothing to change") for one in path["decisions"])


def decided(sizes: list[int], limit_s: float) -> dict[str, Any]:
    """Runs `tune auto` with the traffic. Returns the figures of the path."""
    classes = {str(class_of(nbytes)) for nbytes in sizes}
    with (
        given_as({"sizes": sizes}) as name,
        process(pinned("h1", PYTHON, STORES, "mix", name), ready="ready") as traffic,
        process(on("h2", "carefulctl", "tune", "auto", "eth1"), quiet=True) as controller,
    ):
        began = time.monotonic()
        while not is_decided(path := known("h2", READER), classes):
            if traffic.poll() is not None or controller.poll() is not None:
                raise BenchError("the traffic or the controller has ended")
            if time.monotonic() > began + limit_s:
                return path
            time.sleep(LOOK_S)
        return {**path, "decided_s": time.monotonic() - began}


def verdicts(decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns each A/B that compared a class's plans, with the gain that was predicted for it.

    `predicted_us` and `live_us` are the bounds of the gain: low and high.
    """
    found, predicted_us = [], dict[int, list[float]]()
    ends = ("gain_low_us", "gain_high_us")
    for decision in decisions:
        for row in decision.get("classes", ()):
            nbytes = row["message_bytes_max"]
            if "gain_low_us" in row.get("prediction", {}):
                predicted_us[nbytes] = [row["prediction"][end] for end in ends]
            if row.get("ab", {}).get("gain_low_us") is not None:
                live_us = [row["ab"][end] for end in ends]
                one = {"bytes": nbytes, "what": decision["what"], "live_us": live_us}
                found.append(one | {"predicted_us": predicted_us.get(nbytes)})
    return found


def in_effect() -> tuple[int, list[dict[str, Any]]]:
    """Returns h1's slot in h2's tune map, and each class's plan and minpulse of netTx."""
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
    """Returns the decision, and the sweep of each size.

    arms: makes the arms from a size, its class's settings, and a frame's payload.
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
    return {
        "decided_s": path.get("decided_s"),
        "measured": bool(path.get("figures")),
        "verdicts": verdicts(path.get("decisions", [])),
        "fragment_bytes": [now[class_of(nbytes)]["plan"]["first_bytes"] for nbytes in sizes],
        "sizes": found,
    }
