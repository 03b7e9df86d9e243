"""The rates of `carefulctl top`: differences between two looks at running instances."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from careful.control.instance import instances, live_latency, status
from careful.control.instance.instances import Instance
from careful.control.instance.records import PeerStatus
from careful.control.instance.status import Lent, Status
from careful.control.options.config import Config
from careful.errors import CarefulError


@dataclass(frozen=True)
class Look:
    """Counters at one time.

    Attributes:
        at_s: time of the monotonic clock.
        found: status of each instance, from status.gather().
        messages: instance -> (queue, slot) -> live messages and their total time, nanoseconds:
            messages sent, and messages received and written to files. Unreadable slots are left
            out.
        mute: errors of instances that did not answer, by name.
    """

    at_s: float
    found: Sequence[Status]
    messages: Mapping[str, Mapping[tuple[int, int], tuple[int, int]]] = field(default_factory=dict)
    mute: Mapping[str, str] = field(default_factory=dict)


def _messages(instance: Instance) -> dict[tuple[int, int], tuple[int, int]]:
    totals: dict[tuple[int, int], tuple[int, int]] = {}
    for queue, one in enumerate(instances.queues(instance)):
        with suppress(CarefulError):  # only root may read the map
            found = live_latency.messages(one.name, with_stored=True)
            totals |= {(queue, slot): total for slot, total in found.items()}
    return totals


def look(running: Sequence[Instance], settings: Config, with_messages: bool = True) -> Look:
    """Reads the counters of running instances.

    Raises CarefulError if none answers.
    """
    statuses, mute = status.gather_all(running, settings)
    read_from = running if with_messages else ()
    messages = {
        instance.name: _messages(instance) for instance in read_from if instance.name not in mute
    }
    return Look(time.monotonic(), statuses, messages, mute)


def _waits_for(peer: PeerStatus) -> str | None:
    if peer.withholding:
        return "client"
    if peer.messages_out and peer.credits_free <= 1:
        return "credits"
    return "frames" if peer.messages_out else None


@dataclass(frozen=True)
class PeerRates:
    """Rates between this host and a peer; lost and repaired frames since the session began."""

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
    repaired_frames: int
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
        repaired_frames=now.asked_again_frames - now.late_frames + now.sent_again_frames,
        waits_for=_waits_for(now),
    )


def _slot(current: Status, peer: PeerStatus) -> tuple[int, int]:
    return (peer.queue if current.queues else 0), peer.slot


def _processes(current: Status) -> list[int | None]:
    """Returns the processes that counted: a new carefuld starts at 0."""
    return [current.pid, *(queue.pid for queue in current.queues)]


def rates(before: Look, now: Look) -> list[Rates]:
    """Returns the rates of each instance's peers, per second, the fastest peer first."""
    seconds = max(now.at_s - before.at_s, 1e-3)
    earlier = {current.instance: current for current in before.found}
    result = []
    for current in now.found:
        old = earlier.get(current.instance)
        if old and _processes(old) != _processes(current):
            old = None
        messages = before.messages.get(current.instance, {}) if old else {}
        slots = {(_slot(old, peer), peer.address): peer for peer in old.peers} if old else {}
        peers = []
        for peer in current.peers:
            slot = _slot(current, peer)
            total = now.messages.get(current.instance, {}).get(slot, (0, 0))
            total_before = messages.get(slot, total)
            peers.append(
                _peer(peer, slots.get((slot, peer.address)), (total, total_before), seconds)
            )
        peers.sort(key=lambda peer: -peer.tx_bytes_per_s - peer.rx_bytes_per_s)
        whole = (current.ifname, current.xdp_mode, current.zerocopy, current.window_buffers)
        result.append(Rates(current.instance, *whole, seconds, peers, current.lent))
    return result
