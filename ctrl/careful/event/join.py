"""How nodes find each other: sessions with all, then a group of them.

Programs of one job start at different times: whoever is first asks the others again until they
are there. It calls node's Node and group.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Sequence

import careful
from careful.errors import CarefulError
from careful.event.group import Events
from careful.node import Node, Peer

#: What the attempt to connect to a host fails with while careful is not up there.
_NOT_YET = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_AGAIN_S = 0.05


def _checked(hosts: Sequence[str], rank: int) -> list[str]:
    if isinstance(hosts, str) or not hosts:
        raise ValueError("hosts are a list of names, in the order of their ranks")
    if not 0 <= rank < len(hosts):
        raise ValueError(f"rank {rank}: 0 to {len(hosts) - 1}")
    return list(hosts)


def join(
    node: Node,
    hosts: Sequence[str],
    rank: int,
    *,
    group: int = 0,
    attached: bool = False,
    timeout_s: float = 30.0,
) -> Events:
    """Take part in a group; returns when there is a session with each of its nodes.

    Args:
        node: of careful.open(), with at least as many `peers` as there are other nodes; or of
            careful.connect(), whose carefuld has as many.
        hosts: of each rank its host, as Node.connect() takes it; this one's is not used.
        rank: this node's.
        group: a number that all nodes give, so that none takes another program's.
        attached: whether nodes of careful.connect() take part; of one of these it is said. Then
            all that the group says is requests for handler 127 - group % 128, which is its own.
        timeout_s: how long to wait for the others, seconds.

    Raises:
        ValueError: the rank is none of the hosts'.
        CarefulError: a host is unknown, did not come in time, or the node has a group, or
            another program the handler.
    """
    end = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_checked(hosts, rank)):
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
    return Events(node, peers, rank, group, attached)


def opened(iface: str, nodes: int, attached: bool) -> Node:
    """What the examples join with: a queue of their own, or a place beside carefuld."""
    if attached:
        return careful.connect(os.environ.get("CAREFUL_INSTANCE", iface))
    return careful.open(iface, peers=max(nodes - 1, 1))


async def ajoin(
    node: Node,
    hosts: Sequence[str],
    rank: int,
    *,
    group: int = 0,
    attached: bool = False,
    timeout_s: float = 30.0,
) -> Events:
    """As join(), in an event loop."""
    end = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_checked(hosts, rank)):
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
    return Events(node, peers, rank, group, attached)
