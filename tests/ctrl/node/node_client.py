"""What test_node.py runs on a host: CASE [ADDRESS [PID]]. Fails with an AssertionError."""

from __future__ import annotations

import sys

import careful
import node_life
import node_traffic


def main() -> None:
    case = getattr(node_traffic, sys.argv[1], None) or getattr(node_life, sys.argv[1])
    owned = ("interrupt", "dropped", "left_open")
    if sys.argv[1] == "beside_carefuld":
        case()
        return
    if sys.argv[1] in owned:
        case(careful.open("eth1", peers=2))
        return
    options = {"stall_ms": 1000} if sys.argv[1] == "peer_silent" else {}
    with careful.open("eth1", peers=2, **options) as node:
        case(node)


if __name__ == "__main__":
    main()
