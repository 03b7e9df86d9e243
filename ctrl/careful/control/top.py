"""The rates of `carefulctl top`: differences between two looks at running instances."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from careful.control import instances, live_latency, maps, status
from careful.control.config import Config
from careful.control.instances import Instance
from careful.control.status import Lent, PeerStatus, Status
from careful.errors import CarefulError


@dataclass(frozen=True)
class Look:
    """Counters at one time.

    Attributes:
        at_s: of the monotonic clock.
        found: status of each instance, from status.gather().
        messages: instance -> (queue, slot) -> live messages and their total time, nanoseconds:
            those sent, and those received and written to files. Slots that could not be read
            are left out.
        mute: why an instance did not answer, by name.
    """

    at_s: float
    found: Sequence[Status]
    messages: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    mute: Mapping[str, str] = field(default_factory=dict)


def _messages(instance: Instance) -> dict[tuple[int, int], tuple[int, int]]:
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for queue, one in enumerate(instances.queues(instance)):
        with suppress(CarefulError), maps.live_map(one.name) as counted:  # only root may read it
            for slot in range(counted.entries):
                if (entry := live_latency.whole(counted, slot)) is not None:
                    sent = live_latency.cells_in(entry).values()
                    stored = live_latency.stored_in(entry)[0].values()
                    both = [(one.count, one.sum_ns) for one in sent]
                    both += [(one.count, one.sum_ns) for one in stored]
                    found[queue, slot] = sum(one for one, _ in both), sum(ns for _, ns in both)
    return found


def look(running: Sequence[Instance], settings: Config, with_messages: bool = True) -> Look:
    """Reads the counters of running instances.

    Raises CarefulError if none answers.
    """
    found, mute = status.gather_all(running, settings)
    counted = running if with_messages else ()
    messages = {one.name: _messages(one) for one in counted if one.name not in mute}
    return Look(time.monotonic(), found, messages, mute)


def _waits_for(one: PeerStatus) -> str | None:
    if one.withholding:
        return "client"
    if one.messages_out and one.credits_free <= 1:
        return "credits"
    return "frames" if one.messages_out else None


@dataclass(frozen=True)
class PeerRates:
    """Rates between this host and a peer; lost_frames counts since the session began."""

    peer: str
    address: str
    state: str
    error: str | None
    credits_free: int
    credits_window: int
    tx_bytes_per_s: float
    rx_bytes_per_s: float
    tx_frames_per_s: float
    rx_frames_per_s: float
    messages_per_s: float
    latency_us: float | None
    lost_frames: int
    waits_for: str | None


@dataclass(frozen=True)
class Rates:
    """Rates on an instance, over some seconds."""

    instance: str
    ifname: str
    xdp_mode: str
    zerocopy: bool
    window_buffers: int
    seconds: float
    peers: Sequence[PeerRates]
    lent: Lent | None = None


def _peer(
    now: PeerStatus,
    before: PeerStatus | None,
    messages: tuple[tuple[int, int], tuple[int, int]],
    seconds: float,
) -> PeerRates:
    def rate(name: str) -> float:
        count = int(getattr(now, name))
        return max(0, count - int(getattr(before, name, count))) / seconds

    (count, sum_ns), (count_before, sum_before) = messages
    more = count - count_before
    return PeerRates(
        peer=now.called,
        address=now.address,
        state=now.state,
        error=now.error,
        credits_free=now.credits_free,
        credits_window=now.credits_window,
        tx_bytes_per_s=rate("tx_bytes"),
        rx_bytes_per_s=rate("rx_bytes"),
        tx_frames_per_s=rate("tx_frames"),
        rx_frames_per_s=rate("rx_frames"),
        messages_per_s=max(0, more) / seconds,
        latency_us=(sum_ns - sum_before) / more / 1e3 if more > 0 else None,
        lost_frames=now.lost_here_frames + now.lost_there_frames,
        waits_for=_waits_for(now),
    )


def _slot(found: Status, peer: PeerStatus) -> tuple[int, int]:
    return (peer.queue if found.queues else 0), peer.slot


def _processes(found: Status) -> list[int | None]:
    """Returns the processes that counted: a new carefuld begins at 0."""
    return [found.pid, *(one.pid for one in found.queues)]


def rates(before: Look, now: Look) -> list[Rates]:
    """Returns the rates of each instance's peers, a second, the fastest first."""
    seconds = max(now.at_s - before.at_s, 1e-3)
    was = {one.instance: one for one in before.found}
    made = []
    for one in now.found:
        old = was.get(one.instance)
        if old and _processes(old) != _processes(one):
            old = None
        messages = before.messages.get(one.instance, {}) if old else {}
        slots = {(_slot(old, each), each.address): each for each in old.peers} if old else {}
        peers = []
        for each in one.peers:
            slot = _slot(one, each)
            found = now.messages.get(one.instance, {}).get(slot, (0, 0))
            earlier = messages.get(slot, found)
            peers.append(_peer(each, slots.get((slot, each.address)), (found, earlier), seconds))
        peers.sort(key=lambda each: -each.tx_bytes_per_s - each.rx_bytes_per_s)
        whole = (one.ifname, one.xdp_mode, one.zerocopy, one.window_buffers)
        made.append(Rates(one.instance, *whole, seconds, peers, one.lent))
    return made
