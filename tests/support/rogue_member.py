"""A member of `up --group` who uses as much of carefuld as a member can.

    rogue_member.py SOCKET PEER MISDEED

The misdeed is repeated until the process is killed. The line `begun` reports the first successful
round. The test watches the other users.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import careful
from careful._abi import ffi, lib, pack
from careful.address import resolve
from careful.daemon.client import Client
from careful.errors import CarefulError

#: Host parts of unused addresses; more than the places for peers.
NOBODY = range(100, 130)
BURST_NS = 2_900_000_000
CLIENTS = 40
#: More than a host gives one peer.
HANDLES = 160
TRAIN = 4096
GROUP = 5
#: Counts of misdeeds; long signatures and the trial lock are refused.
attempts = [0]


@contextlib.contextmanager
def tried() -> Iterator[None]:
    """Counts successes, and ignores refusals."""
    try:
        yield
        attempts[0] += 1
    except CarefulError as error:
        if not attempts[0]:
            print(error, file=sys.stderr, flush=True)


def connect(client: Client, peer: str) -> int:
    """Begins a session with the peer. Returns its index."""
    payload = resolve(peer).sockaddr()
    return client.call(lib.CAREFUL_IPC_CONNECT, peer, payload=payload, bytes=5000, timeout_s=6).peer


def connections(path: Path, _: str) -> Iterator[None]:
    """Takes every place for a client."""
    kept = []
    while True:
        for _ in range(CLIENTS - len(kept)):
            with tried():
                kept.append(Client(path))
        yield


def places(path: Path, _: str) -> Iterator[None]:
    """Takes every place for a peer, with unused addresses of both families."""
    clients = [Client(path) for _ in range(4)]
    while True:
        for host in NOBODY:
            address = f"10.77.0.{host}" if host % 2 else f"fd77::{host}"
            payload = resolve(address).sockaddr()
            with tried():
                one = clients[host % len(clients)]
                one.call(lib.CAREFUL_IPC_PEER_BEGIN, "peer", payload=payload, timeout_s=0.05)
        yield


def handles(path: Path, peer: str) -> Iterator[None]:
    """Takes every handle that the other host grants."""
    client = Client(path)
    name = connect(client, peer)
    asked = pack("careful_block_open", flags=0, path_bytes=3) + b"big"
    while True:
        for _ in range(HANDLES):
            with tried():
                reported = client.call(
                    lib.CAREFUL_IPC_REQUEST,
                    peer,
                    peer=name,
                    handler=int(lib.CAREFUL_BLOCK_OPEN),
                    payload=asked,
                    timeout_s=3,
                )
                reported.check(peer)
        yield


def signatures(path: Path, peer: str) -> Iterator[None]:
    """Asks for seconds of computation in carefuld, again and again."""
    client = Client(path)
    fields = {"kind": lib.CAREFUL_IPC_REQUEST, "bytes": 8, "bursts": 1, "capacity": 1}
    fields |= {"compute_ns": BURST_NS, "peers_count": 1, "marks_count": 1, "marks": [1]}
    fields["peers"] = [connect(client, peer)]
    question = bytes(ffi.buffer(ffi.new("struct careful_signature *", fields)))
    while True:
        with contextlib.suppress(CarefulError):
            client.call(lib.CAREFUL_IPC_SIGNATURE, peer, payload=question, timeout_s=60)
        attempts[0] += 1
        yield


def trial_lock(path: Path, peer: str) -> Iterator[None]:
    """Asks the other carefuld to keep its clients quiet, in this host's name."""
    client = Client(path)
    name, number = connect(client, peer), 0
    while True:
        number += 1
        with contextlib.suppress(CarefulError):
            client.call(
                lib.CAREFUL_IPC_REQUEST,
                peer,
                peer=name,
                handler=int(lib.CAREFUL_TRIAL_LOCK),
                args=[3000, 1, number, 0],
                timeout_s=5,
            )
        attempts[0] += 1
        yield


def trains(path: Path, peer: str) -> Iterator[None]:
    """Asks for the longest trains to and from the other host."""
    client = Client(path)
    name = connect(client, peer)
    train = {"bytes": 1400, "flags": int(lib.CAREFUL_IPC_TRAIN), "args": [TRAIN, 0, 0, 0]}
    while True:
        with tried():
            client.call(lib.CAREFUL_IPC_BURST, peer, peer=name, timeout_s=3)
        with tried():
            client.call(lib.CAREFUL_IPC_MEASURE, peer, peer=name, timeout_s=3, **train)
        yield


def flaps(_: Path, peer: str) -> Iterator[None]:
    """Starts programs that have a session and leave at once."""
    while True:
        with tried(), careful.attach(name="flaps") as node:
            node.connect(peer)
        yield


def silence(path: Path, _: str) -> Iterator[None]:
    """Sends questions and never reads the answers."""
    kept: list[Client] = []
    while True:
        with tried():
            kept = [*kept[-CLIENTS // 2 :], Client(path)]
            for _ in range(1000):
                if not kept[-1].try_submit(lib.CAREFUL_IPC_INFO, lambda _: None):
                    break
        yield


def joins(_: Path, peer: str) -> Iterator[None]:
    """Joins a group of events at the other host by invalid messages."""
    handler = int(lib.CAREFUL_HANDLERS_APP) - 1 - GROUP
    with careful.attach(name="joins") as node:
        other = node.connect(peer)
        while True:
            for cookie in range(8):
                fields = {"region": GROUP, "bytes": 77, "args": [1, 2, 0, cookie]}
                am = pack(
                    "careful_am",
                    kind=int(lib.CAREFUL_AM_EVENT),
                    handler=int(lib.CAREFUL_EVENT_JOIN),
                    **fields,
                )
                with contextlib.suppress(CarefulError):  # a program answers, or there is none
                    other.request(handler, am).result(1)
                attempts[0] += 1
            yield


MISDEEDS: dict[str, Callable[[Path, str], Iterator[None]]] = {
    one.__name__: one
    for one in (
        connections,
        places,
        handles,
        signatures,
        trial_lock,
        trains,
        flaps,
        silence,
        joins,
    )
}


def main() -> None:
    """Runs until it is killed."""
    path, peer, misdeed = sys.argv[1:4]
    for number, _ in enumerate(MISDEEDS[misdeed](Path(path), peer)):
        if not attempts[0] and number > 10:
            sys.exit("nothing was done")
        if attempts[0]:
            print("begun", flush=True)  # the test waits for this line
        time.sleep(0.1)


if __name__ == "__main__":
    main()
