"""How nodes find each other: a session with every other node, then the group.

Programs of one job start at different times, so each node retries until the others are there.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Sequence

from careful.errors import CarefulError
from careful.event.group import Events
from careful.node import Node, Peer

#: Errors of a connect to a host on which careful is not up yet.
_NOT_YET = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNRESET}
_RETRY_S = 0.05


def _check(hosts: Sequence[str], rank: int) -> list[str]:
    if isinstance(hosts, str) or not hosts:
        raise ValueError("hosts must be a list of names, in the order of their ranks")
    if not 0 <= rank < len(hosts):
        raise ValueError(f"rank {rank} must be from 0 to {len(hosts) - 1}")
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
    """Joins a group; returns when there is a session with each other node. Raises ValueError: no
    host has this rank. Raises CarefulError: a host is unknown or did not come in time, the node
    already has a group, or another program has the handler.

    Args:
        node: from careful.open() with at least as many `peers` as there are other nodes, or from
            careful.attach() to a carefuld with as many.
        hosts: the host of each rank, as for Node.connect(); this node's own entry is not used.
        rank: this node's rank.
        group: a number that all nodes give, so that groups of other programs stay apart.
        attached: whether some nodes come from careful.attach(); such a node need not say so. The
            group then uses requests to handler 127 - group % 128.
        timeout_s: longest wait for the others, seconds.
    """
    deadline = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_check(hosts, rank)):
        while number != rank:
            try:
                peers.append(node.connect(host, max(deadline - time.monotonic(), 0.1)))
                break
            except CarefulError as error:
                if error.errno not in _NOT_YET or time.monotonic() >= deadline:
                    raise
            node.wait(_RETRY_S)
        else:
            peers.append(None)
    return Events(node, peers, rank, group, attached)


async def ajoin(
    node: Node,
    hosts: Sequence[str],
    rank: int,
    *,
    group: int = 0,
    attached: bool = False,
    timeout_s: float = 30.0,
) -> Events:
    """Does the same as join(), in an event loop."""
    deadline = time.monotonic() + timeout_s
    peers: list[Peer | None] = []
    for number, host in enumerate(_check(hosts, rank)):
        while number != rank:
            try:
                peers.append(await node.aconnect(host, max(deadline - time.monotonic(), 0.1)))
                break
            except CarefulError as error:
                if error.errno not in _NOT_YET or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_RETRY_S)
        else:
            peers.append(None)
    return Events(node, peers, rank, group, attached)
