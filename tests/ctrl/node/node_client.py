"""test_node.py runs this on a host: CASE [ADDRESS [PID]]. Fails with an AssertionError."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import careful
import node_life
import node_loop
import node_traffic
from careful.node import Node


async def in_loop(case: Callable[[Node], Awaitable[None]], node: Node) -> None:
    async with node:
        await case(node)


def main() -> None:
    modules = (node_traffic, node_life, node_loop)
    case = next(found for one in modules if (found := getattr(one, sys.argv[1], None)))
    owned = ("interrupt", "dropped", "left_open")
    if sys.argv[1] in ("beside_carefuld", "left_in_a_thread"):
        case()
        return
    if sys.argv[1] in owned:
        case(careful.open("eth1", peers=2))
        return
    options = {"stall_ms": 1000} if sys.argv[1] == "peer_silent" else {}
    if asyncio.iscoroutinefunction(case):
        wait = os.environ.get("CASE_WAIT", "adaptive")
        asyncio.run(in_loop(case, careful.open("eth1", peers=2, wait=wait)), debug=False)
        return
    with careful.open("eth1", peers=2, **options) as node:
        case(node)


if __name__ == "__main__":
    main()
