"""Metrics for Prometheus, by its conventions.

Owns names, units and help texts; the only module that imports prometheus_client. Labels never hold
text from a peer: each new word would be another series.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from careful._abi import enum_names
from careful.control.instance.exporter import Seen
from careful.control.instance.records import PeerStatus
from careful.control.instance.status import Status
from careful.errors import CarefulError, from_os
from careful.extras import need
from careful.versions import versions

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Look = Callable[[], Sequence[Seen]]

#: Counter of carefuld -> metric without its _total, and help.
_COUNTERS = {
    "rx_frames": ("careful_received_frames", "Frames with data that arrived from peers."),
    "rx_bytes": ("careful_received_bytes", "Bytes of frames that arrived from peers."),
    "tx_frames": ("careful_transmitted_frames", "Frames with data that were sent to peers."),
    "tx_bytes": ("careful_transmitted_bytes", "Bytes of frames that were sent to peers."),
    "lost_frames": ("careful_lost_frames", "Frames whose loss ended an epoch of a session."),
    "epochs_broken": ("careful_epochs_broken", "Sessions that had to begin again."),
    "digest_bad": ("careful_bad_digests", "Messages whose contents did not match their digest."),
}
#: Figure of a peer -> metric, and help.
_PEER_COUNTERS = {
    "tx_frames": ("careful_peer_transmitted_frames", "Frames with data sent to the peer."),
    "tx_bytes": ("careful_peer_transmitted_bytes", "Bytes of frames sent to the peer."),
    "rx_frames": ("careful_peer_received_frames", "Frames with data that arrived from the peer."),
    "rx_bytes": ("careful_peer_received_bytes", "Bytes of frames from the peer."),
    "epochs": ("careful_peer_epochs", "Epochs of the session with the peer."),
    "sent_again_frames": (
        "careful_peer_sent_again_frames",
        "Lost frames that were sent to the peer again.",
    ),
    "asked_again_frames": (
        "careful_peer_asked_again_frames",
        "Missing frames that were requested from the peer.",
    ),
    "asked_silent_frames": (
        "careful_peer_asked_silent_frames",
        "Of the requested frames, those for which no later frame had arrived.",
    ),
    "late_frames": ("careful_peer_late_frames", "Requested frames that were late, not lost."),
}
_PEER_GAUGES = {
    "credits_free": ("careful_peer_free_credits", "Buffers of the peer that may be filled now."),
    "credits_window": ("careful_peer_window_credits", "Buffers that the peer grants us."),
    "window_buffers": ("careful_peer_given_window", "Receive buffers that the peer may fill."),
    "window_now_buffers": (
        "careful_peer_present_window",
        "Receive buffers that the peer may fill while the network is congested.",
    ),
    "messages_out": ("careful_peer_queued_messages", "Messages being sent, or waiting to be."),
    "operations": ("careful_peer_pending_operations", "Operations that wait for an answer."),
    "withholding": (
        "careful_peer_withholding",
        "1: credits are withheld from the peer, because a client here is slow.",
    ),
    "control_unheard": (
        "careful_peer_control_unheard",
        "1: frames of the peer arrive, but no control messages; a firewall?",
    ),
}
_EXPORT_COUNTERS = {
    "requests": ("careful_export_requests", "Requests of peers that were answered."),
    "failed": ("careful_export_failed_requests", "Requests that were answered with an error."),
    "denied": (
        "careful_export_denied_requests",
        "Requests for a path outside the export, or for an operation that is not allowed.",
    ),
    "read_bytes": ("careful_export_read_bytes", "Bytes of files that peers read."),
    "written_bytes": ("careful_export_written_bytes", "Bytes of files that peers wrote."),
}
_PEER = ["carefuld", "peer", "address"]


class _Families:
    """Metrics by name, in the order of their first use."""

    def __init__(self) -> None:
        self._made: dict[str, Metric] = {}

    def get(self, kind: str, name: str, said: str, labels: Sequence[str]) -> Any:
        from prometheus_client import core

        if name not in self._made:
            of_kind = getattr(core, f"{kind}MetricFamily")
            self._made[name] = of_kind(name, said, labels=labels)
        return self._made[name]

    def add(
        self, kind: str, name: str, said: str, labels: dict[str, str], value: float | int
    ) -> None:
        self.get(kind, name, said, list(labels)).add_metric(list(labels.values()), value)

    def all(self) -> Iterable[Metric]:
        return self._made.values()


def _instance(families: _Families, name: str, found: Status) -> None:
    info = {key: str(getattr(found, key)) for key in ("ifname", "driver", "xdp_mode", "protocol")}
    info["zerocopy"] = "yes" if found.zerocopy else "no"
    families.get("Info", "careful_carefuld", "How carefuld uses its interface.", ["carefuld"])
    families.get("Info", "careful_carefuld", "", []).add_metric([name], info)
    labels = {"carefuld": name}
    for key, metric, said in (
        ("window_buffers", "careful_window_buffers", "Receive buffers that each peer has."),
        ("receive_buffers", "careful_receive_buffers", "Receive buffers of carefuld."),
        ("peers_max", "careful_peers_max", "Peers that carefuld can have."),
    ):
        families.add("Gauge", metric, said, labels, getattr(found, key))
    counted = dict(found.counters)
    held = counted.pop("tx_buffers_held")
    said = "Send buffers whose frames have not left yet."
    families.add("Gauge", "careful_held_send_buffers", said, labels, held)
    said = "1: the XDP program is on the interface; 0: it was taken off, and no frame arrives."
    attached = not counted.pop("device_program_detached")
    families.add("Gauge", "careful_program_attached", said, labels, int(attached))
    for key, (metric, said) in _COUNTERS.items():
        families.add("Counter", metric, said, labels, counted.pop(key))
    for key, value in counted.items():
        if key.startswith("drop_"):
            said = "Frames that were dropped, by reason."
            reason = labels | {"reason": key.removeprefix("drop_")}
            families.add("Counter", "careful_dropped_frames", said, reason, value)
        elif key.startswith("device_"):
            said = "Counters of the socket and the driver, by their names in careful.h."
            event = labels | {"event": key.removeprefix("device_")}
            families.add("Counter", "careful_device_events", said, event, value)
        else:
            said = "Other counters of carefuld, by their names in careful.h."
            families.add("Counter", "careful_events", said, labels | {"event": key}, value)
    for verdict, value in found.xdp_counters.items():
        said = "Frames that the XDP program saw, by verdict; only root can see them."
        families.add("Counter", "careful_xdp_frames", said, labels | {"verdict": verdict}, value)


def _peer(families: _Families, seen: Seen, one: PeerStatus) -> None:
    where = one.node or one.address
    labels = dict(zip(_PEER, (seen.name, where, one.address), strict=True))
    for state in ("ended", *enum_names("careful_peer_state", "CAREFUL_PEER_").values()):
        if state != "none":
            is_so = int(one.state == state)
            said = "1: the session is in this state."
            families.add("Gauge", "careful_peer_state", said, labels | {"state": state}, is_so)
    for key, (metric, said) in _PEER_COUNTERS.items():
        families.add("Counter", metric, said, labels, getattr(one, key))
    for end in ("here", "there"):
        said = "Frames whose loss ended an epoch, by the end that missed them."
        found = labels | {"found": end}
        families.add(
            "Counter", "careful_peer_lost_frames", said, found, getattr(one, f"lost_{end}_frames")
        )
    for key, (metric, said) in _PEER_GAUGES.items():
        families.add("Gauge", metric, said, labels, int(getattr(one, key)))
    if one.slot in seen.messages:
        count, total_s = seen.messages[one.slot]
        family = families.get(
            "Summary",
            "careful_peer_message_duration_seconds",
            "Times of the timed messages to the peer's slot.",
            [*_PEER, "slot"],
        )
        # Counts belong to a slot: a peer that returns in another slot has another series.
        values = [*labels.values(), str(one.slot)]
        family.add_metric(values, count_value=count, sum_value=total_s)


def _label(text: str) -> str:
    """Returns a file's name as a UTF-8 label; other bytes are escaped."""
    return os.fsencode(text).decode(errors="backslashreplace")


def _lent(families: _Families, name: str, found: Status) -> None:
    if found.lent is None:
        return
    said = "Bytes of memory that may be lent to peers."
    families.add("Gauge", "careful_lendable_bytes", said, {"carefuld": name}, found.lent.nbytes)
    for one in found.lent.owners:
        said = "Bytes of memory that are lent to a host, by its name or address."
        labels = {"carefuld": name, "owner": one.owner}
        families.add("Gauge", "careful_lent_bytes", said, labels, one.used)


def _use(families: _Families, seen: Seen) -> None:
    assert seen.found is not None
    assert seen.use is not None
    for kind, latency in seen.use.latency.items():
        labels = {"carefuld": seen.name, "operation": kind}
        family = families.get(
            "Histogram",
            "careful_operation_duration_seconds",
            "Times of operations of clients here (get: fetches), from request to answer.",
            list(labels),
        )
        buckets = [
            ("+Inf" if below == float("inf") else repr(below), count)
            for below, count in latency.below
        ]
        family.add_metric(list(labels.values()), buckets, sum_value=latency.sum_s)
        said = "Operations of clients here that failed."
        families.add("Counter", "careful_failed_operations", said, labels, latency.failed)
    _lent(families, seen.name, seen.found)
    for export, one in zip(seen.found.exports, seen.use.exports, strict=False):
        labels = {"carefuld": seen.name, "export": _label(export.path)}
        for key, (metric, said) in _EXPORT_COUNTERS.items():
            families.add("Counter", metric, said, labels, getattr(one, key))


def families(looks: Iterable[Seen]) -> Iterable[Metric]:
    """Returns looks at carefulds as metrics."""
    made = _Families()
    numbers = versions()
    spoken = {key: str(numbers[key]) for key in numbers if key.endswith(("version", "minor"))}
    made.get("Info", "careful_build", "Versions of this exporter.", []).add_metric([], spoken)
    for one_look in looks:
        seen = replace(one_look, name=_label(one_look.name))
        said = "1: carefuld answers; 0: it died, or does not answer."
        labels = {"carefuld": seen.name}
        made.add("Gauge", "careful_up", said, labels, int(seen.found is not None or seen.full))
        said = "1: carefuld serves as many clients as it can, so it has no other metrics."
        made.add("Gauge", "careful_full", said, labels, int(seen.full))
        if seen.found is None:
            continue
        _instance(made, seen.name, seen.found)
        for one in seen.found.peers:
            _peer(made, seen, one)
        if seen.use:
            _use(made, seen)
    return made.all()


class _Collector:
    """Looks at the carefulds at each request."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def describe(self) -> list[Metric]:
        """Returns nothing, so that registering does not read the carefulds."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from families(self._look())


def _registry(look: Look) -> Any:
    need("prometheus_client", "carefulctl exporter")
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    registry.register(_Collector(look))
    return registry


def metrics_text(look: Look) -> str:
    """Returns one look in Prometheus' text format.

    Raises MissingExtraError if prometheus_client is not installed.
    """
    registry = _registry(look)
    from prometheus_client import generate_latest

    return generate_latest(registry).decode()


def serve(look: Look, host: str, port: int, begun: Callable[[], None]) -> None:
    """Serves Prometheus over HTTP until an exception. Calls begun() when it serves.

    Raises MissingExtraError without prometheus_client, and CarefulError if the address is not
    available or the first look fails.
    """
    registry = _registry(look)
    look()
    from prometheus_client import start_http_server

    try:
        start_http_server(port, host, registry)
    except OverflowError:
        raise CarefulError(errno.EINVAL, "no such port", f"--listen {host}:{port}") from None
    except OSError as error:
        raise from_os(error, f"--listen {host}:{port}") from None
    begun()
    threading.Event().wait()
