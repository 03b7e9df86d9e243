"""What moves between this host and its peers now: differences of two looks at running instances.

Owns the figures of `carefulctl top`. Calls status.py and live.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from careful.control import instances, live, maps, status
from careful.control.config import Config
from careful.control.instances import Instance
from careful.errors import CarefulError


@dataclass(frozen=True)
class Look:
    """What was counted until a time.

    Attributes:
        at_s: of the monotonic clock.
        found: of each instance, as status.gather() has it.
        messages: instance -> queue of it and slot -> live messages and what they took,
            nanoseconds; without a slot that could not be read.
        mute: why of an instance there is nothing, by name.
    """

    at_s: float
    found: Sequence[Mapping[str, Any]]
    messages: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    mute: Mapping[str, str] = field(default_factory=dict)


def _messages(instance: Instance) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for queue, one in enumerate(instances.queues(instance)):
        with suppress(CarefulError), maps.live_map(one.name) as counted:  # only root may read it
            for slot in range(counted.entries):
                if (entry := live.whole(counted, slot)) is not None:
                    cells = live.cells_in(entry).values()
                    total_ns = sum(cell.sum_ns for cell in cells)
                    found[queue, slot] = sum(cell.count for cell in cells), total_ns
    return found


def look(running: Sequence[Instance], settings: Config) -> Look:
    """What running instances have counted so far.

    Raises:
        CarefulError: none of them answers.
    """
    found, mute = status.gather_all(running, settings)
    messages = {one.name: _messages(one) for one in running if one.name not in mute}
    return Look(time.monotonic(), found, messages, mute)


def _waits_for(one: Mapping[str, Any]) -> str | None:
    """What holds up messages to a peer, as far as a look can tell."""
    if one["withholding"]:
        return "client"
    if one["messages_out"] and one["credits_free"] <= 1:
        return "credits"
    return "frames" if one["messages_out"] else None


def _peer(
    now: Mapping[str, Any],
    before: Mapping[str, Any],
    messages: tuple[tuple[int, int], tuple[int, int]],
    seconds: float,
) -> dict[str, Any]:
    def rate(name: str) -> float:
        return max(0, int(now[name]) - int(before.get(name, now[name]))) / seconds

    (count, sum_ns), (count_before, sum_before) = messages
    more = count - count_before
    return {
        "peer": status.called(now),
        "address": now["address"],
        "state": now["state"],
        "error": now["error"],
        "credits_free": now["credits_free"],
        "credits_window": now["credits_window"],
        "tx_bytes_per_s": rate("tx_bytes"),
        "rx_bytes_per_s": rate("rx_bytes"),
        "tx_frames_per_s": rate("tx_frames"),
        "rx_frames_per_s": rate("rx_frames"),
        "messages_per_s": max(0, more) / seconds,
        "latency_us": (sum_ns - sum_before) / more / 1e3 if more > 0 else None,
        "lost_frames": now["lost_here_frames"] + now["lost_there_frames"],
        "waits_for": _waits_for(now),
    }


def _slot(found: Mapping[str, Any], peer: Mapping[str, Any]) -> tuple[int, int]:
    """A peer's queue, among those of its instance, and its slot there."""
    return (peer["queue"] if found["queues"] else 0), peer["slot"]


def _processes(found: Mapping[str, Any]) -> list[int]:
    """Which count: those of another carefuld begin at 0."""
    return [found["pid"], *(one["pid"] for one in found["queues"])]


def rates(before: Look, now: Look) -> list[dict[str, Any]]:
    """Of each instance: its peers, those that move most first, and what they move a second."""
    seconds = max(now.at_s - before.at_s, 1e-3)
    was = {one["instance"]: one for one in before.found}
    made = []
    for one in now.found:
        name = one["instance"]
        old = was.get(name)
        is_same = old is not None and _processes(old) == _processes(one)
        messages = before.messages.get(name, {}) if is_same else {}
        old = old if old is not None and is_same else {"peers": (), "queues": ()}
        slots = {(_slot(old, each), each["address"]): each for each in old["peers"]}
        peers = []
        for each in one["peers"]:
            slot = _slot(one, each)
            found = now.messages.get(name, {}).get(slot, (0, 0))
            earlier = messages.get(slot, found)
            told = slots.get((slot, each["address"]), {})
            peers.append(_peer(each, told, (found, earlier), seconds))
        peers.sort(key=lambda each: -each["tx_bytes_per_s"] - each["rx_bytes_per_s"])
        made.append(
            {
                "instance": name,
                "ifname": one["ifname"],
                "xdp_mode": one["xdp_mode"],
                "zerocopy": one["zerocopy"],
                "window_buffers": one["window_buffers"],
                "seconds": seconds,
                "peers": peers,
            }
        )
    return made
