"""Requests of clients and their latencies, and peers' use of exports, since carefuld's start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from careful._abi import CData, ffi, lib, sizeof
from careful.daemon.client import Client

#: Kinds of operations that are timed.
KINDS = ("request", "get", "store")


@dataclass(frozen=True)
class Latency:
    """Operations of one kind.

    Attributes:
        failed: operations that failed; not part of the other figures.
        sum_s: total time of the successful operations, seconds.
        below: upper bound in seconds (inf: none) -> number of faster operations.
    """

    failed: int
    sum_s: float
    below: tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class ExportUse:
    """Peers' use of an export (struct careful_export_use)."""

    requests: int
    failed: int
    denied: int
    read_bytes: int
    written_bytes: int


@dataclass(frozen=True)
class LendUse:
    """Memory that is lent: the total, or an owner's (struct careful_lend_use)."""

    nbytes: int
    used: int
    pieces: int
    by: int
    identity: bytes
    gone_s: int  # seconds since the owner's last session ended, plus 1; 0: it has a session


@dataclass(frozen=True)
class Use:
    """Use of an instance: latencies by kind, and its exports in the order of its command line.

    lends: the memory that is lent: the total, then each owner's; empty without `--lend`.
    """

    latency: dict[str, Latency]
    exports: Sequence[ExportUse]
    lends: Sequence[LendUse] = ()


def _latency(raw: CData) -> Latency:
    bounds = [
        (lib.CAREFUL_IPC_BUCKET_NS << index) / 1e9 for index in range(lib.CAREFUL_IPC_BUCKETS - 1)
    ]
    below = tuple(zip([*bounds, float("inf")], accumulate(raw.buckets), strict=True))
    return Latency(raw.failed, raw.sum_ns / 1e9, below)


def parse(payload: bytes) -> Use:
    """Parses the answer to USE."""
    head = ffi.new("struct careful_ipc_use *")
    ffi.memmove(head, payload, sizeof("careful_ipc_use"))
    exports = ffi.new("struct careful_export_use[]", head.exports_count)
    ffi.memmove(exports, payload[sizeof("careful_ipc_use") :], ffi.sizeof(exports))
    lends = ffi.new("struct careful_lend_use[]", head.lends_count)
    ffi.memmove(
        lends, payload[sizeof("careful_ipc_use") + ffi.sizeof(exports) :], ffi.sizeof(lends)
    )
    return Use(
        {kind: _latency(getattr(head, kind)) for kind in KINDS},
        [
            ExportUse(one.requests, one.failed, one.denied, one.read_bytes, one.written_bytes)
            for one in exports
        ],
        [
            LendUse(one.bytes, one.used, one.pieces, one.by, bytes(one.id), one.gone_s)
            for one in lends
        ],
    )


def ask(client: Client) -> Use:
    """Returns the counts of a carefuld. Raises CarefulError if it does not answer."""
    return parse(client.call(lib.CAREFUL_IPC_USE, client.name).payload)
