"""A peer with a trusted key that misbehaves, also in a sealed session.

rogue_keyed.py SERVER KEYS SEAL SECONDS: an instance on eth1 that sends a real carefuld requests of
no honest client. It names any handler with any payload, stores and gets any region and range, names
handlers in stores, exceeds its share, and leaves handles open. Prints the successes and failures as
JSON. rogue.py sends false frames, and so does build/gcc/sim --hostile, mostly with valid proofs and
seals.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import careful
from careful._abi import lib, pack
from careful.node import Node
from careful.node.operation import Operation
from careful.node.peer import Peer

rng = random.Random(18)
MIB = 1 << 20
AT_ONCE = 64
ENDS_S = 20.0
OFFSETS = (0, 1, MIB, (1 << 63) - 1, 1 << 63, (1 << 64) - MIB)


def opened(path: bytes, flags: int = 0, nbytes: int = 0) -> bytes:
    fields = {"flags": flags, "bytes": nbytes, "path_bytes": len(path)}
    return pack("careful_block_open", **fields) + path


def any_payload(peer: Peer) -> bytes:
    """Random, or correct except for its words."""
    paths = (b"big", b".", b"../big", b"/etc/passwd", b"", b"x" * 300, b"a\0b")
    if rng.random() < 0.5:
        return opened(
            rng.choice(paths), rng.getrandbits(rng.choice((1, 4, 32))), rng.getrandbits(40)
        )
    return rng.randbytes(rng.randrange(min(peer.payload_bytes, 2000)))


def misdeeds(peer: Peer, key: int) -> Iterator[Operation]:
    """Yields misdeeds without end."""
    while True:
        words = tuple(rng.choice((0, 1, key, rng.getrandbits(32))) for _ in range(4))
        region = peer.region(rng.choice((key, key + 1, 0, rng.getrandbits(32))))
        offset = rng.choice(OFFSETS)
        match rng.randrange(4):
            case 0:
                yield peer.request(rng.randrange(lib.CAREFUL_HANDLERS), any_payload(peer), words)
            case 1:
                yield peer.request(int(lib.CAREFUL_BLOCK_OPEN), opened(b"big"))
            case 2:
                source = rng.randbytes(rng.choice((0, 1, 4096, MIB)))
                handler = rng.choice((None, rng.randrange(lib.CAREFUL_HANDLERS)))
                yield region.store(source, offset, handler=handler, args=words)
            case _:
                yield region.get(bytearray(rng.choice((1, 4096, MIB))), offset)


def misbehave(node: Node, peer: Peer, until: float, ended: dict[str, Any]) -> None:
    """Misbehaves in a session, as long as the session lasts."""
    key = peer.request(int(lib.CAREFUL_BLOCK_OPEN), opened(b"big")).result(ENDS_S).args[0]
    under_way: list[Operation] = []
    for one in misdeeds(peer, key):
        under_way.append(one)
        while len(under_way) >= AT_ONCE or (under_way and under_way[0].done()):
            first = under_way.pop(0)
            well = first.exception(ENDS_S) is None
            ended["well" if well else "failed"] += 1
        node.wait(0)
        if time.monotonic() > until:
            return


def main() -> None:
    server, keys, seal, seconds = sys.argv[1:]
    ended: dict[str, Any] = {"well": 0, "failed": 0, "sessions": 0}
    options = {} if seal == "off" else {"seal": seal}
    with careful.open("eth1", peers=2, keys=keys, **options) as node:
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            try:
                peer = node.connect(server, ENDS_S)
                ended["sessions"] += 1
                misbehave(node, peer, until, ended)
            except OSError as error:  # the server has ended that session
                ended["why"] = str(error)
    print(json.dumps(ended))


if __name__ == "__main__":
    main()
