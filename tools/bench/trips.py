"""Round trips by a client in Python: trips.py HOST BYTES COUNT; prints JSON as tools/bench/rtt."""

from __future__ import annotations

import json
import os
import sys
import time

import careful

ECHO = 1
WARMUP = 500


def main() -> None:
    """Ask a server of tools/bench/rtt."""
    host, nbytes, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    payload = bytes(nbytes)
    took = []
    with careful.open("eth1", xdp=os.environ.get("CAREFUL_XDP", "auto"), wait="spin") as node:
        peer = node.connect(host)
        xdp = node.info()["xdp_mode"]
        for _ in range(count + WARMUP):
            before = time.perf_counter_ns()
            answer = peer.request(ECHO, payload).result()
            took.append(time.perf_counter_ns() - before)
            assert len(answer.payload) == nbytes
    us = sorted(one / 1e3 for one in took[WARMUP:])
    at = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    found = {f"{key}_us": us[int((len(us) - 1) * share)] for key, share in at.items()}
    print(json.dumps({"schema": 1, "request_bytes": nbytes, "count": count, **found, "xdp": xdp}))


if __name__ == "__main__":
    main()
