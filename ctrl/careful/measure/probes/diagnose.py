"""Why a peer answers probes no longer: what an errno means to somebody who measures.

Owns the words, and the look for a smaller MTU on the way, which lets small probes through and
no large one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from careful.address import Address
from careful.errors import CarefulError
from careful.measure.probes.udp import Answer, Prober, Reply

#: What every path takes: nobody looks for an MTU below.
_SMALL_BYTES = 1280
_TTL, _TRIES, _TIMEOUT_S = 64, 2, 0.3
#: A session that is over, however it was noticed.
_OVER = (errno.ECONNRESET, errno.ENOTCONN, errno.ESHUTDOWN, errno.EPIPE)


def explained(
    error: CarefulError,
    own: str,
    host: str,
    address: Address,
    size_bytes: int,
    smaller: Callable[[Address, int], tuple[int, str]] | None = None,
) -> CarefulError:
    """The same error in words of use; unchanged where it is clear or our own carefuld's.

    own: what errors call our carefuld; size_bytes: of the frame's payload; smaller: what looks
    for a smaller MTU, `narrower` by default.
    """
    if error.errno not in (*_OVER, errno.ETIMEDOUT):
        return error
    if error.what == own and error.errno != errno.ETIMEDOUT:  # it waits for the peer as we do
        return error
    if size_bytes > _SMALL_BYTES // 2:
        mtu_bytes, by = (smaller or narrower)(address, size_bytes)
        if mtu_bytes:
            text = (
                f"frames of {size_bytes} bytes do not arrive: the MTU on the way is {mtu_bytes} "
                f"(says {by}); set the interface's to that at both ends, then down and up again"
            )
            return CarefulError(errno.EHOSTUNREACH, text, host)
    if error.errno == errno.ETIMEDOUT:
        text = "it no longer answers: the path or the host is down (carefulctl measure pathchar)"
    else:
        text = "its careful ended or restarted meanwhile: is it up there? then try again"
    return CarefulError(error.errno, text, host)


def narrower(address: Address, size_bytes: int) -> tuple[int, str]:
    """The MTU that a router names for a probe that does not get through, and the router.

    0, "" where nobody does.
    """
    try:
        with Prober(address.ip, address.scope) as prober:
            most_bytes = prober.interface_mtu_bytes()
            if most_bytes < size_bytes:  # a router said so before, and the kernel knows
                return most_bytes, "the route there"
            reply = Reply(Answer.SILENT)
            for _ in range(_TRIES):
                reply = prober.probe(_TTL, most_bytes, _TIMEOUT_S)
                if reply.answer is Answer.TOO_BIG and 0 < reply.mtu_bytes < most_bytes:
                    return reply.mtu_bytes, reply.address or "this host's route"
    except CarefulError:
        pass  # no way there at all: that is what is said then
    return 0, ""
