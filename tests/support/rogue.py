"""A peer that misbehaves against a real carefuld: rogue.py SERVER MISDEED [SECONDS].

Speaks the protocol from a plain UDP socket. It opens sessions without keys, and sends frames with
the right cookie and contents that no honest peer sends. Each misdeed has its own sessions, and is
repeated for SECONDS, at least once. Prints the counts as JSON. It runs in a host's network
namespace; its starter watches the others. Misdeeds that need no wire are C tests of the block
service (test_block_wait, _quota, _long, _squash and _hangs): repeated batches, listings on disk,
SEED of any size, owners and attributes, preallocation.
"""

from __future__ import annotations

import contextlib
import errno
import json
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from careful._abi import ffi, layout, lib, pack, sizeof, unpack
from ctrl_message import ctrl_message

PORT = int(lib.CAREFUL_PORT_DEFAULT)
HELLO, SYNC = int(lib.CAREFUL_HELLO), int(lib.CAREFUL_SYNC)
HDR, AM = sizeof("careful_hdr"), sizeof("careful_am")
WHOLE = int(lib.CAREFUL_F_FIRST | lib.CAREFUL_F_LAST)
BULK = int(lib.CAREFUL_F_BULK)
ANSWER_S = 20.0
#: How long to repeat misdeeds that the server refuses, seconds.
PATIENCE_S = 60.0
rng = random.Random(18)


class Ended(Exception):  # noqa: N818
    """The server has ended the session."""


def altered(struct: str, data: bytes, spare: tuple[str, ...] = ()) -> bytes:
    """Returns the struct with another value in one field."""
    field = rng.choice([one for one in layout(struct) if one.name not in (*spare, "check")])
    at, size = field.offset, field.item_bytes
    old = int.from_bytes(data[at : at + size], "big")
    values = (0, (1 << 8 * size) - 1, old + 1, old - 1, rng.getrandbits(8 * size))
    new = rng.choice(values) % (1 << 8 * size)
    return data[:at] + new.to_bytes(size, "big") + data[at + size :]


def checked(struct: str, data: bytes) -> bytes:
    """Returns the struct with a right check."""
    field = next(one for one in layout(struct) if one.name == "check")
    at, end = field.offset, field.offset + field.item_bytes
    data = data[:at] + bytes(field.item_bytes) + data[end:]
    if struct == "careful_hdr":
        check = lib.careful_wire_hdr_check(ffi.from_buffer(data))
    else:
        check = lib.careful_wire_message_check(ffi.from_buffer(data), len(data))
    return data[:at] + int(check).to_bytes(4, "big") + data[end:]


class Rogue:
    """A session with a carefuld.

    Attributes:
        takes: window that it grants.
        credits: claimed returned buffers; None: the true number.
        answers: whether a SYNC is answered.
        replies: status and words of received answers, by token.
    """

    def __init__(
        self,
        server: str,
        name: bytes = b"rogue",
        port: int = 0,
        source: str = "",
        takes: int = 64,
    ) -> None:
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((source, port))
        self.socket.connect((server, PORT))
        self.name, self.takes = name, takes
        self.credits: int | None = None
        self.answers = True
        self.replies: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.cookie = rng.getrandbits(63) | 1
        self._said: dict[str, Any] = {}
        self.seq = self.returned = self.received = self.token = 0

    def __enter__(self) -> Rogue:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        """Makes room for the next session, since one address has half of the slots."""
        self.control(int(lib.CAREFUL_BYE), cookie=self._said["cookie"])
        self.socket.close()

    # --- control messages

    def control(self, kind: int, body: str = "terms", **fields: Any) -> None:
        self.send(ctrl_message(kind, body, **fields))

    def hello(self, nonce: int, token: int) -> None:
        """Sends an honest peer's HELLO."""
        self.control(
            HELLO,
            nonce=nonce,
            token=token,
            cookie=self.cookie,
            window=self.takes,
            buffer_bytes=4096,
            frame_bytes=3840,
            protocol=int(lib.CAREFUL_SAYS_REPAIRS),
            incarnation=7,
            name=self.name,
        )

    def open(self) -> None:
        """Makes the handshake; Ended if it is refused."""
        nonce, token, until = rng.getrandbits(63) | 1, 0, time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            self.hello(nonce, token)
            heard = self._heard(0.1)
            if heard.get("nonce") != nonce:
                continue
            if heard["type"] == lib.CAREFUL_CHALLENGE:
                token = heard["token"]
            elif heard["type"] == lib.CAREFUL_WELCOME:
                self._said = heard
                return
            elif heard["type"] == lib.CAREFUL_REFUSE:
                raise Ended
        raise TimeoutError("no answer to HELLO")

    def _heard(self, timeout_s: float) -> dict[str, Any]:
        self.socket.settimeout(timeout_s)
        try:
            data = self.socket.recv(1 << 16)
        except (TimeoutError, ConnectionRefusedError):
            return {}
        if len(data) != sizeof("careful_ctrl"):
            return {}
        return unpack("careful_ctrl", data)

    def lie(self, kind: int) -> None:
        """Sends a control message of the session with a false field."""
        values = {"nonce": rng.getrandbits(64), "cookie": self._said["cookie"]}
        data = ctrl_message(kind, "counts", seq_sent=self.seq, **values)
        self.send(checked("careful_ctrl", altered("careful_ctrl", data, ("version",))))

    # --- frames

    @property
    def window(self) -> int:
        return int(self._said["terms.window"])

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # ICMP of an earlier message, or a full queue
            self.socket.send(data)

    def frame(self, payload: bytes = b"", flags: int = WHOLE, **am: Any) -> bytes:
        """Returns a message of one frame with the next number."""
        self.seq += 1
        body = pack("careful_am", **am) + payload
        covered = AM if flags & BULK else len(body)
        header = pack(
            "careful_hdr",
            version=int(lib.CAREFUL_WIRE_VERSION),
            type=int(lib.CAREFUL_DATA),
            flags=flags,
            src_node=self._said["slot"],
            queue=self._said["queue"],
            cookie=self._said["cookie"],
            seq=self.seq,
            credits=self.received if self.credits is None else self.credits,
            msg_id=self.seq,
            msg_bytes=len(payload),
            frag_bytes=len(payload),
            payload_crc=lib.careful_wire_crc32c(body, covered),
        )
        return checked("careful_hdr", header) + body

    def pump(self, timeout_s: float = 0) -> None:
        """Handles what arrived. Ended: the server no longer knows the session."""
        self.socket.settimeout(timeout_s)
        with contextlib.suppress(TimeoutError, BlockingIOError, ConnectionRefusedError):
            while True:
                self._take(self.socket.recv(1 << 16))
                self.socket.settimeout(0)

    def _take(self, data: bytes) -> None:
        if data[1] & lib.CAREFUL_CTRL_BIT:
            self._question(data)
            return
        header = unpack("careful_hdr", data)
        self.received += 1
        self.returned = max(self.returned, header["credits"])
        if header["flags"] & lib.CAREFUL_F_FIRST and len(data) >= HDR + AM:
            am = unpack("careful_am", data, HDR)
            if am["kind"] == lib.CAREFUL_AM_REPLY:
                self.replies[am["token"]] = (am["status"], am["args"])

    def _question(self, data: bytes) -> None:
        if len(data) != sizeof("careful_ctrl"):
            return
        asked = unpack("careful_ctrl", data)
        if asked["type"] in (lib.CAREFUL_HELLO, lib.CAREFUL_GONE, lib.CAREFUL_BYE):
            raise Ended
        if asked["type"] == SYNC and self.answers:
            self.control(
                int(lib.CAREFUL_SYNC_ACK),
                "counts",
                nonce=asked["nonce"],
                cookie=self._said["cookie"],
                seq_sent=self.seq,
                seq_rcvd=self.received,
                returned=self.received if self.credits is None else self.credits,
            )

    def within_credits(self, data: bytes) -> None:
        """Sends a frame when there is a credit. Ended: none came."""
        until = time.monotonic() + 1
        while self.seq - self.returned >= self.window:
            self.pump(0.01)
            if time.monotonic() > until:
                raise Ended
        self.send(data)

    def ask(
        self, handler: int, payload: bytes = b"", args: tuple[int, ...] = ()
    ) -> tuple[int, ...]:
        """Sends a request. Returns its answer: status, then its words."""
        self.token += 1
        words = [*args, 0, 0, 0, 0][:4]
        kind = int(lib.CAREFUL_AM_REQUEST)
        self.within_credits(
            self.frame(payload, kind=kind, handler=handler, token=self.token, args=words)
        )
        until = time.monotonic() + ANSWER_S
        while self.token not in self.replies:
            self.pump(0.05)
            if time.monotonic() > until:
                raise TimeoutError(f"no answer to {handler}")
        status, found = self.replies.pop(self.token)
        return status, *found

    def opened(self, path: bytes = b"", flags: int = 0, nbytes: int = 0) -> tuple[int, ...]:
        """Sends OPEN. Returns the answer."""
        how = pack("careful_block_open", flags=flags, bytes=nbytes, path_bytes=len(path))
        return self.ask(int(lib.CAREFUL_BLOCK_OPEN), how + path)

    def store(self, region: int, handler: int, nbytes: int = 64) -> bytes:
        """Returns a STORE of one frame."""
        self.token += 1
        kind = int(lib.CAREFUL_AM_STORE)
        return self.frame(
            bytes(nbytes), WHOLE | BULK, kind=kind, handler=handler, token=self.token, region=region
        )

    def get(self, region: int, nbytes: int) -> bytes:
        """Returns a GET."""
        self.token += 1
        return self.frame(
            kind=int(lib.CAREFUL_AM_GET), token=self.token, region=region, bytes=nbytes
        )


class LateUnlock(Rogue):
    """Grants the trial lock at once, and answers its release late.

    Attributes:
        grants: whether the lock is granted from the second time on; a trial begins if all grant it.
        asked: how often a trial asked.
    """

    grants = True
    asked = 0

    def _take(self, data: bytes) -> None:
        super()._take(data)
        if data[1] & lib.CAREFUL_CTRL_BIT or len(data) < HDR + AM:
            return
        am = unpack("careful_am", data, HDR)
        if am["kind"] != lib.CAREFUL_AM_REQUEST or am["handler"] != lib.CAREFUL_TRIAL_LOCK:
            return
        asks = bool(am["args"][0])
        self.asked += asks
        self._answers.append((time.monotonic() + (0 if asks else 0.3), asks, am["token"]))

    def open(self) -> None:
        self._answers: list[tuple[float, bool, int]] = []
        super().open()

    def pump(self, timeout_s: float = 0) -> None:
        super().pump(timeout_s)
        for one in [one for one in self._answers if one[0] <= time.monotonic()]:
            self._answers.remove(one)
            busy = one[1] and (self.asked == 1 or not self.grants)
            status = errno.EBUSY if busy else 0
            self.send(self.frame(kind=int(lib.CAREFUL_AM_REPLY), token=one[2], status=status))


# --- misdeeds: each yields once for every deed


def handler_without_payload(server: str) -> Iterator[None]:
    """STOREs to a handle without a file that name handlers of requests."""
    with Rogue(server) as rogue:
        _, key, *_ = rogue.opened(flags=int(lib.CAREFUL_BLOCK_NULL), nbytes=1 << 20)
        for handler in range(lib.CAREFUL_HANDLERS + 1):
            rogue.within_credits(rogue.store(key, handler))
            yield
        rogue.pump(0.2)


def stores_without_credits(server: str) -> Iterator[None]:
    """STOREs to no region, whose answers find no credits."""
    with Rogue(server) as rogue:
        rogue.credits = 0
        for _ in range(2000):
            rogue.within_credits(rogue.store(0x7777, lib.CAREFUL_HANDLERS))
            yield


def gets_without_credits(server: str) -> Iterator[None]:
    """GETs whose data finds no credits."""
    with Rogue(server) as rogue:
        _, key, *_ = rogue.opened(b"big")
        rogue.credits = rogue.received
        for _ in range(600):
            rogue.within_credits(rogue.get(key, 1 << 20))
            yield
        rogue.pump(0.2)


def beyond_the_window(server: str) -> Iterator[None]:
    """Frames beyond the credits."""
    with Rogue(server) as rogue:
        for _ in range(1024):
            rogue.send(rogue.store(0x7777, lib.CAREFUL_HANDLERS, 3000))
            yield


def handles_kept(server: str) -> Iterator[None]:
    """Handles, listings and memory for batches that are not closed."""
    scratch, listing = int(lib.CAREFUL_BLOCK_SCRATCH), int(lib.CAREFUL_BLOCK_LIST)
    with Rogue(server) as rogue:
        for _ in range(200):
            rogue.opened(b".", scratch, 4 << 20)
            rogue.opened(b"big")
            rogue.ask(listing, b".", (int(lib.CAREFUL_BLOCK_RECURSIVE),))
            yield


def many_ports(server: str) -> Iterator[None]:
    """Sessions from many ports of one address, until one is refused."""
    with contextlib.ExitStack() as kept:
        for _ in range(64):
            kept.enter_context(Rogue(server))
            yield


def paths_elsewhere(server: str) -> Iterator[None]:
    """Requests whose path is in no region, in a file, or in memory without a path."""
    how = pack("careful_block_open")
    with Rogue(server) as rogue:
        flags = int(lib.CAREFUL_BLOCK_SCRATCH | lib.CAREFUL_BLOCK_NULL)
        keys = [0x7777, rogue.opened(b"big")[1]]
        keys += [rogue.opened(flags=flags, nbytes=nbytes)[1] for nbytes in (1, 8192)]
        for key in keys:
            for handler, payload in (
                (lib.CAREFUL_BLOCK_OPEN, how),
                (lib.CAREFUL_BLOCK_MKDIR, how),
                (lib.CAREFUL_BLOCK_LIST, b""),
                (lib.CAREFUL_BLOCK_STAT, b""),
            ):
                status, *_ = rogue.ask(int(handler), payload, (0, key))
                assert status, f"{handler} of {key}"
                yield


def memory_hoarded(server: str) -> Iterator[None]:
    """Pieces of memory without end, of false lengths, and of others."""
    with Rogue(server) as rogue:
        for number in range(200):
            name = f"\x1b[31m{number}".encode() if number % 9 else b"none"
            ask = pack(
                "careful_memory_ask",
                bytes=rng.choice((0, 1, 4096, 1 << 20, 1 << 62, (1 << 64) - 1)),
                hosts=rng.choice((0, 0, 1, 16, 1 << 31)),
                name_bytes=rng.choice((len(name), 1, 255, (1 << 32) - 1)),
            )
            handlers = range(int(lib.CAREFUL_MEMORY_CREATE), int(lib.CAREFUL_MEMORY_LAST) + 1)
            for handler in handlers:
                rogue.ask(handler, (ask + name)[: rng.choice((1000, 60, 3))])
            yield


def names_for_terminals(server: str) -> Iterator[None]:
    """A name and a path with terminal commands."""
    with Rogue(server, name=b"\x1b]0;mine\x07\x9b31m\nfake line") as rogue:
        rogue.opened(b"\x1b[31mnone")
        yield


def lies_in_frames(server: str) -> Iterator[None]:
    """Frames with right checks and one false field in header or message."""
    for _ in range(20):
        with contextlib.suppress(Ended), Rogue(server) as rogue:
            _, key, *_ = rogue.opened(b"big")
            for _ in range(25):
                whole = rng.choice((rogue.get(key, 1000), rogue.store(key, 0)))
                rogue.within_credits(lying(whole[:HDR], whole[HDR:]))
                yield


def lying(head: bytes, body: bytes) -> bytes:
    """Returns a frame with a false field in its header or message that still finds its session."""
    if rng.random() < 0.5:
        head = altered("careful_hdr", head, ("cookie", "src_node", "version", "seq"))
    else:
        body = altered("careful_am", body[:AM]) + body[AM:]
        fields = unpack("careful_hdr", head)
        covered = AM if fields["flags"] & BULK else len(body)
        fields["payload_crc"] = lib.careful_wire_crc32c(body, covered)
        head = pack("careful_hdr", **fields)
    return checked("careful_hdr", head) + body


def lies_in_control(server: str) -> Iterator[None]:
    """Control messages of the session with a false field."""
    kinds = range(int(lib.CAREFUL_HELLO), int(lib.CAREFUL_MISSING) + 1)
    for _ in range(20):
        with contextlib.suppress(Ended), Rogue(server) as rogue:
            for _ in range(25):
                rogue.lie(rng.choice(kinds))
                yield
                rogue.pump()


def requests_without_end(server: str) -> Iterator[None]:
    """Data that arrived is requested again and again, and no credit is returned."""
    named = 8 * (int(lib.CAREFUL_NAME_BYTES) - 1)
    with contextlib.suppress(Ended), Rogue(server, takes=4096) as rogue:
        _, key, *_ = rogue.opened(b"big")
        rogue.credits, rogue.answers = rogue.received, False
        while rogue.received < rogue.takes // 2 and rogue.seq < rogue.takes:
            rogue.within_credits(rogue.get(key, 3000))
            rogue.pump()
        until, came = time.monotonic() + PATIENCE_S, rogue.received
        while time.monotonic() < until:
            for first in range(0, came, named):
                to = min(first + named, came)
                fields = {"cookie": rogue._said["cookie"], "before": first, "last": to}
                rogue.control(int(lib.CAREFUL_MISSING), "missing", **fields)
                yield
            rogue.pump(0.0005)


def late_unlock(server: str) -> Iterator[None]:
    """All peers except one grant the trial lock, and all answer its release late."""
    with contextlib.ExitStack() as kept:
        peers = [LateUnlock(server) for _ in range(16)]
        for peer in peers:
            kept.enter_context(peer)
        peers[-1].grants = False
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and sum(peer.asked for peer in peers) < 2 * len(peers):
            for peer in peers:
                before = peer.asked
                peer.pump(0.002)
                yield from [None] * (peer.asked - before)


def flapping_sessions(server: str) -> Iterator[None]:
    """Sessions that open and close at once."""
    for _ in range(60):
        with contextlib.suppress(Ended), Rogue(server):
            yield


def long_trains(server: str) -> Iterator[None]:
    """Sessions that ask for the longest trains and close."""
    for _ in range(4):
        with contextlib.suppress(Ended), Rogue(server) as rogue:
            for number in range(1, 17):
                fields = {"nonce": number, "cookie": rogue._said["cookie"], "hold_ms": 2000}
                rogue.control(int(lib.CAREFUL_TRAIN_ASK), "train", frames=4096, **fields)
                yield


def silent_sessions(server: str) -> Iterator[None]:
    """Sessions that ask for a file, but neither read nor answer."""
    with contextlib.ExitStack() as kept:
        for _ in range(4):
            rogue = kept.enter_context(Rogue(server))
            rogue.answers = False
            _, key, *_ = rogue.opened(b"big")
            rogue.credits = rogue.received
            for _ in range(16):
                rogue.send(rogue.get(key, 1 << 20))
                yield
        time.sleep(2)


def windows_held(ends: list[tuple[str, str]], until_s: float) -> Iterator[None]:
    """As many busy sessions as possible, with each server from each source."""
    with contextlib.ExitStack() as kept:
        rogues = []
        for _ in range(8):
            for server, source in ends:
                with contextlib.suppress(Ended, TimeoutError):
                    rogues.append(kept.enter_context(Rogue(server, source=source)))
                    yield
        until = time.monotonic() + until_s
        while time.monotonic() < until:
            for rogue in rogues:
                try:
                    kind = int(lib.CAREFUL_AM_REQUEST)
                    rogue.within_credits(rogue.frame(kind=kind, handler=99))
                    rogue.pump()
                except Ended:
                    with contextlib.suppress(Ended, TimeoutError):
                        rogue.seq = rogue.returned = rogue.received = 0
                        rogue.open()
                yield
            time.sleep(0.1)


def both_families(server: str) -> Iterator[None]:
    """All windows, by both addresses of the server, separated by a comma."""
    yield from windows_held([(one, "") for one in server.split(",")], 5)


def many_addresses(server: str) -> Iterator[None]:
    """All windows, from all addresses of this host."""
    shown = subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout
    found = [one["local"] for link in json.loads(shown) for one in link["addr_info"]]
    sources = [one for one in found if not one.startswith("127.")]
    yield from windows_held([(server, one) for one in sources], 5)


def hello_flood(server: str) -> Iterator[None]:
    """HELLOs, as fast as they can be sent."""
    one = Rogue(server)
    for number in range(1, 40000):
        one.hello(number, 0)
        yield


MISDEEDS: dict[str, Callable[[str], Iterator[None]]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        handler_without_payload,
        stores_without_credits,
        gets_without_credits,
        beyond_the_window,
        handles_kept,
        many_ports,
        paths_elsewhere,
        memory_hoarded,
        names_for_terminals,
        lies_in_frames,
        lies_in_control,
        requests_without_end,
        late_unlock,
        flapping_sessions,
        long_trains,
        silent_sessions,
        both_families,
        many_addresses,
        hello_flood,
    )
}

#: Misdeeds that need a host that tries XDP modes and has 16 free windows.
APART = ("late-unlock",)


def main() -> None:
    """Does one misdeed, or all in turns, until the time is over, and until each was done as often
    as requested. After earlier misdeeds the server may refuse a misdeed for a while.
    """
    server, name, *rest = sys.argv[1:]
    until = time.monotonic() + (float(rest[0]) if rest else 0)
    least = int(rest[1]) if len(rest) > 1 else 1
    done: dict[str, int] = {}
    while True:
        for kind in MISDEEDS if name == "all" else [name]:
            done.setdefault(kind, 0)
            with contextlib.suppress(Ended, TimeoutError):
                for _ in MISDEEDS[kind](server):
                    done[kind] += 1
        now = time.monotonic()
        if now >= until and (min(done.values()) >= least or now >= until + PATIENCE_S):
            break
        time.sleep(0.1)
    print(json.dumps(done))
    if not any(done.values()):
        sys.exit("nothing was done")


if __name__ == "__main__":
    main()
