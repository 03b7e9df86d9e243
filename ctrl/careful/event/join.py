"""How nodes find each other: sessions with all, then a group of them.

Programs of one job start at different times: whoever is first asks the others again until they
are there. It calls node's Node and group.py.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence

from careful.errors import CarefulError
from careful.event.group import Events
from careful.node import Node, Peer

#: What the attempt to connect to a host fails with while careful is not up there.
_NOT_YET = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_AGAIN_S = 0.05


def _checked(node: Node, hosts: Sequence[str], rank: int) -> list[str]:
    if node._engine.attached:
        text = "events take a node of careful.open(), with a queue of its own"
        raise CarefulError(errno.EOPNOTSUPP, text, node.ifname)
    if isinstance(hosts, str) or not hosts:
        raise ValueError("hosts are a list of names, in the order of their ranks")
    if not 0 <= rank < len(hosts):
        raise ValueError(f"rank {rank}: 0 to {len(hosts) - 1}")
    return list(hosts)


def join(
    node: Node, hosts: Sequence[str], rank: int, *, group: int = 0, timeout_s: float = 30.0
) -> Events:
    """Take part in a group; returns when there is a session with each of its nodes.

    Args:
        node: of careful.open(), with at least as many `peers` as there are other nodes.
        hosts: of each rank its host, as Node.connect() takes it; this one's is not used.
        rank: this node's.
        group: a number that all nodes give, so that none takes another program's.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        ValueError: the rank is none of the hosts'.
        CarefulError: a host is unknown, did not come in time, or the node has a group; it is of
            careful.connect() (EOPNOTSUPP).
    """
    end = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_checked(node, hosts, rank)):
        while number != rank:
            try:
                peers.append(node.connect(host, max(end - time.monotonic(), 0.1)))
                break
            except CarefulError as error:
                if error.errno not in _NOT_YET or time.monotonic() >= end:
                    raise
            node.wait(_AGAIN_S)
        else:
            peers.append(None)
    return Events(node, peers, rank, group)


async def ajoin(
    node: Node, hosts: Sequence[str], rank: int, *, group: int = 0, timeout_s: float = 30.0
) -> Events:
    """As join(), in an event loop."""
    end = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_checked(node, hosts, rank)):
        while number != rank:
            try:
                peers.append(await node.aconnect(host, max(end - time.monotonic(), 0.1)))
                break
            except CarefulError as error:
                if error.errno not in _NOT_YET or time.monotonic() >= end:
                    raise
            await asyncio.sleep(_AGAIN_S)
        else:
            peers.append(None)
    return Events(node, peers, rank, group)
