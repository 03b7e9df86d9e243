"""Explains why a peer no longer answers probes, and finds a smaller MTU on the way."""

from __future__ import annotations

import errno
from collections.abc import Callable

from careful.address import Address
from careful.errors import CarefulError
from careful.measure.probes.udp import Answer, Prober, Reply

#: Every path carries packets of this size, so no smaller MTU is searched.
_SMALL_BYTES = 1280
_TTL, _TRIES, _TIMEOUT_S = 64, 2, 0.3
#: Errors of a session that is over.
OVER = (errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.EPIPE)


def explained(
    error: CarefulError,
    own: str,
    host: str,
    address: Address,
    size_bytes: int,
    smaller: Callable[[Address, int], tuple[int, str]] | None = None,
) -> CarefulError:
    """Explains an error to a person; unchanged if it is clear or concerns our own carefuld.

    own: name of our carefuld in errors; size_bytes: payload of the frame; smaller: finds a smaller
    MTU, `narrower` by default.
    """
    if error.errno not in (*OVER, errno.ETIMEDOUT):
        return error
    if error.what == own and error.errno != errno.ETIMEDOUT:  # a timeout can be the peer's
        return error
    if size_bytes > _SMALL_BYTES // 2:
        mtu_bytes, by = (smaller or narrower)(address, size_bytes)
        if mtu_bytes:
            text = (
                f"frames of {size_bytes} bytes do not arrive: the MTU on the way is {mtu_bytes} "
                f"(reported by {by}); set it at both interfaces, then take careful down and up"
            )
            return CarefulError(errno.EHOSTUNREACH, text, host)
    if error.errno == errno.ETIMEDOUT:
        text = "no longer answers: the path or the host is down (carefulctl measure pathchar)"
    else:
        text = "its careful ended or restarted: if it is up there, try again"
    return CarefulError(error.errno, text, host)


def narrower(address: Address, size_bytes: int) -> tuple[int, str]:
    """Returns the MTU that a router reports for a large probe, and the router; else 0 and ""."""
    try:
        with Prober(address.ip, address.scope) as prober:
            most_bytes = prober.interface_mtu_bytes()
            if most_bytes < size_bytes:  # the kernel remembers an earlier report
                return most_bytes, "the route there"
            reply = Reply(Answer.SILENT)
            for _ in range(_TRIES):
                reply = prober.probe(_TTL, most_bytes, _TIMEOUT_S)
                if reply.answer is Answer.TOO_BIG and 0 < reply.mtu_bytes < most_bytes:
                    return reply.mtu_bytes, reply.address or "this host's route"
    except CarefulError:
        pass  # no route: the caller reports the error
    return 0, ""
