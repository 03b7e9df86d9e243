"""A member of `up --group` who takes all that a member can take of carefuld.

    rogue_member.py SOCKET PEER MISDEED

The misdeed is repeated until the process is ended. The line `begun` says that the first round is
over. The test that started it looks at the others.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from careful._abi import ffi, lib, pack
from careful.address import resolve
from careful.daemon.client import Client
from careful.errors import CarefulError

#: Host parts of addresses where nobody is; more than there are places for peers.
NOBODY = range(100, 130)
BURST_NS = 2_900_000_000
CLIENTS = 40
#: More than a host gives one peer.
HANDLES = 160


def connect(client: Client, peer: str) -> int:
    """A session with the peer; its name."""
    payload = resolve(peer).sockaddr()
    return client.call(lib.CAREFUL_IPC_CONNECT, peer, payload=payload, bytes=5000, timeout_s=6).peer


def connections(path: Path, _: str) -> Iterator[None]:
    """Every place for a client."""
    kept = []
    while True:
        with contextlib.suppress(CarefulError):
            while len(kept) < CLIENTS:
                kept.append(Client(path))
        yield


def places(path: Path, _: str) -> Iterator[None]:
    """Every place for a peer, for addresses where nobody is."""
    clients = [Client(path) for _ in range(4)]
    while True:
        for host in NOBODY:
            payload = resolve(f"10.77.0.{host}").sockaddr()
            with contextlib.suppress(CarefulError):
                one = clients[host % len(clients)]
                one.call(lib.CAREFUL_IPC_PEER_BEGIN, "peer", payload=payload, timeout_s=0.05)
        yield


def handles(path: Path, peer: str) -> Iterator[None]:
    """Every handle that the other host gives this one."""
    client = Client(path)
    name = connect(client, peer)
    asked = pack("careful_block_open", flags=0, path_bytes=3) + b"big"
    while True:
        with contextlib.suppress(CarefulError):
            for _ in range(HANDLES):
                open_ = int(lib.CAREFUL_BLOCK_OPEN)
                told = client.call(
                    lib.CAREFUL_IPC_REQUEST,
                    peer,
                    peer=name,
                    handler=open_,
                    payload=asked,
                    timeout_s=3,
                )
                told.check(peer)
        yield


def signatures(path: Path, peer: str) -> Iterator[None]:
    """Seconds of computation in carefuld, again and again."""
    client = Client(path)
    fields = {"kind": lib.CAREFUL_IPC_REQUEST, "bytes": 8, "bursts": 1, "capacity": 1}
    fields |= {"compute_ns": BURST_NS, "peers_count": 1, "marks_count": 1, "marks": [1]}
    fields["peers"] = [connect(client, peer)]
    question = bytes(ffi.buffer(ffi.new("struct careful_signature *", fields)))
    while True:
        with contextlib.suppress(CarefulError):
            client.call(lib.CAREFUL_IPC_SIGNATURE, peer, payload=question, timeout_s=60)
        yield


def peace(path: Path, peer: str) -> Iterator[None]:
    """The other carefuld is told to keep its clients quiet, in this host's name."""
    client = Client(path)
    name, number = connect(client, peer), 0
    while True:
        number += 1
        with contextlib.suppress(CarefulError):
            client.call(
                lib.CAREFUL_IPC_REQUEST,
                peer,
                peer=name,
                handler=int(lib.CAREFUL_PEACE),
                args=[3000, 1, number, 0],
                timeout_s=5,
            )
        yield


MISDEEDS: dict[str, Callable[[Path, str], Iterator[None]]] = {
    one.__name__: one for one in (connections, places, handles, signatures, peace)
}


def main() -> None:
    """Until it is ended."""
    path, peer, misdeed = sys.argv[1:4]
    for _ in MISDEEDS[misdeed](Path(path), peer):
        print("begun", flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main()
