"""`fleet put`: sends a file through a chain of hosts; each host sends on the blocks that it has.

Each host runs fleet/relay.py; this module decides which block each host sends next.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from careful import files
from careful.errors import CarefulError, shown
from careful.fleet.blocks import Blocks, Hop, digests, piece_bytes, plan_blocks
from careful.fleet.hosts import Host
from careful.fleet.relay import DAMAGED, LINE_MAX, Sender
from careful.fleet.running import end
from careful.jsonout import Json
from careful.units import shown_time

#: Pieces of the larger of the two blocks that measure a hop.
_PILOT_PIECES = 4
#: Bytes of a malformed answer that an error shows.
_SHOWN_BYTES = 60


@dataclass
class Member:
    """One host of the chain.

    Attributes:
        host: the host.
        state: "put" or "was there"; "" before the end, and after a failure.
        error: the reason of a failure.
        took_s: until it had the file under its name, seconds.
        resumed_blocks: blocks that it had before.
    """

    host: Host
    state: str = ""
    error: str = ""
    took_s: float = 0.0
    resumed_blocks: int = 0


@dataclass
class Result:
    """Result of a run.

    Attributes:
        members: each host.
        blocks: the blocks of the file; None: no host took part.
        hop: measured on the first hop; None: the file is too small.
        took_s: total time, seconds.
    """

    members: list[Member]
    blocks: Blocks | None = None
    hop: Hop | None = None
    took_s: float = 0.0


class _Link:
    """This end of a host's relay."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.pieces: list[str] = []
        self.present: set[int] = set()
        self.requested: set[int] = set()
        self.finishing = False
        self.process: asyncio.subprocess.Process | None = None

    @property
    def has_ended(self) -> bool:
        return bool(self.member.state or self.member.error)

    async def start(self) -> None:
        host = self.member.host
        self.process = await asyncio.create_subprocess_exec(
            *host.command("fleet", "relay", host.interface),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_MAX,
            start_new_session=True,
        )

    def send(self, **words: object) -> None:
        assert self.process
        assert self.process.stdin
        with suppress(OSError, RuntimeError):  # the output of a process shows whether it has ended
            self.process.stdin.write(json.dumps(words).encode() + b"\n")

    async def receive(self) -> Json:
        """Returns the next line. Raises CarefulError: the relay ended, or the line is malformed."""
        assert self.process
        assert self.process.stdout
        assert self.process.stderr
        try:
            line = await self.process.stdout.readline()
        except ValueError:
            raise CarefulError(0, "sent a line that is too long") from None
        with suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        if line.endswith(b"\n"):
            text = shown(line[:_SHOWN_BYTES].decode(errors="replace").strip())
            raise CarefulError(0, f"said {text!r}, which is not an answer")
        errors = (await self.process.stderr.read()).decode(errors="replace").strip().splitlines()
        last = errors[-1].removeprefix("carefulctl: ") if errors else "its carefulctl ended"
        raise CarefulError(0, shown(last))

    async def ask(self, limit_s: float, **words: object) -> Json:
        """Sends a request; returns the answer, without lines that report that the host is busy."""
        self.send(**words)
        try:
            while True:
                async with asyncio.timeout(limit_s):
                    answer = await self.receive()
                if "busy" not in answer:
                    return answer
        except TimeoutError:
            raise CarefulError(0, f"did not answer within {shown_time(limit_s * 1e6)}") from None


def _version(info: os.stat_result) -> tuple[int, int, int]:
    """Returns values that change whenever the contents of the file change."""
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


class Put:
    """Sends one file to several hosts.

    Args:
        path: the file, here.
        limit_s: longest time without progress, seconds.
        replace: whether to replace another file of the same name.
        on_end: called with each host that failed, or that has the file.
    """

    def __init__(
        self, path: Path, limit_s: float, replace: bool, on_end: Callable[[Member], None]
    ) -> None:
        self.path, self.limit_s, self.replace, self.on_end = path, limit_s, replace, on_end
        self._wanted: list[str] = []
        self._fd, self._began, self._bytes, self._mode = -1, 0.0, 0, 0
        self._version = 0, 0, 0

    async def run(self, hosts: Sequence[Host]) -> Result:
        """Sends the file. Raises CarefulError or OSError: the file cannot be read."""
        self._began = time.monotonic()
        links = [_Link(Member(host)) for host in hosts]
        result = Result([link.member for link in links])
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            info = os.fstat(self._fd)
            self._bytes, self._mode = info.st_size, info.st_mode & 0o777
            self._version = _version(info)
            self._wanted = await asyncio.to_thread(digests, self._fd, self._bytes)
            await asyncio.gather(*(self._begin(link) for link in links))
            chain = [link for link in links if not link.has_ended]
            if chain:
                await self._send_through(chain, result)
        finally:
            os.close(self._fd)
            await asyncio.gather(*(self._stop(link) for link in links))
        result.took_s = time.monotonic() - self._began
        return result

    async def _stop(self, link: _Link) -> None:
        if link.process is None:
            return
        assert link.process.stdin
        link.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(link.process.wait(), 1.0)
        await end(link.process)

    def _fail(self, link: _Link, reason: object) -> None:
        if not link.has_ended:
            link.member.error = shown(str(reason))
            self.on_end(link.member)

    def _finish(self, link: _Link, state: str) -> None:
        link.member.state = state
        link.member.took_s = time.monotonic() - self._began
        self.on_end(link.member)

    async def _begin(self, link: _Link) -> None:
        try:
            await link.start()
            first = await link.ask(self.limit_s, name=self.path.name, bytes=self._bytes)
            if first.get("whole") == self._wanted:
                self._finish(link, "was there")
            elif first.get("whole") is not None and not self.replace:
                self._fail(link, f"{self.path.name} exists there and differs (--force)")
            else:
                found = await link.ask(self.limit_s, begin=True)
                pieces = found.get("pieces")
                link.pieces = pieces if isinstance(pieces, list) else []
        except OSError as error:
            self._fail(link, error.strerror or error)

    async def _send_through(self, chain: list[_Link], result: Result) -> None:
        """Sends the file to the first host that accepts it, and along the others."""
        while chain:
            try:
                async with (
                    files.aconnect(chain[0].member.host.address) as first,
                    Sender(first, self.path.name, self._fd) as source,
                ):
                    result.hop = await self._measure(chain, source)
                    await self._pass_along(chain, source, result)
                    return
            except OSError as error:
                self._fail(chain[0], error)
                chain = chain[1:]

    async def _pass_along(self, chain: list[_Link], source: Sender, result: Result) -> None:
        blocks = result.blocks = plan_blocks(self._bytes, len(chain), result.hop)
        for link in chain:
            link.present = blocks.blocks_present(self._wanted, link.pieces)
            link.member.resumed_blocks = len(link.present)
        for relay, following in pairwise(chain):
            relay.send(next=following.member.host.address)
        await self._move(chain, source, blocks)

    async def _measure(self, chain: list[_Link], source: Sender) -> Hop | None:
        """Measures a hop by the first blocks of the file, which count as sent."""
        size = piece_bytes(self._bytes)
        if self._bytes < _PILOT_PIECES * size:
            return None

        async def block_us(nbytes: int) -> float:
            began = time.monotonic()
            await source.send(0, nbytes)
            return (time.monotonic() - began) * 1e6

        async def note_us(link: _Link) -> float:
            began = time.monotonic()
            with suppress(OSError):
                await link.ask(self.limit_s, ping=True)
            return (time.monotonic() - began) * 1e6

        small = min([await block_us(size) for _ in range(3)])
        large = min([await block_us(_PILOT_PIECES * size) for _ in range(2)])
        notes = await asyncio.gather(*map(note_us, chain))
        return Hop.from_times(
            (size, small), (_PILOT_PIECES * size, large), statistics.median(notes)
        )

    async def _move(self, chain: list[_Link], source: Sender, blocks: Blocks) -> None:
        events: asyncio.Queue[tuple[int, Json]] = asyncio.Queue()

        async def listen(number: int) -> None:
            with suppress(OSError):
                try:
                    while True:
                        events.put_nowait((number, await chain[number].receive()))
                except OSError as error:
                    events.put_nowait((number, {"ended": error.strerror or str(error)}))

        async def feed() -> None:
            async def send_block(block: int) -> None:
                await source.send(*blocks.range(block))
                events.put_nowait((-1, {"sent": block}))

            try:
                async with asyncio.TaskGroup() as group:
                    for block in range(blocks.count):
                        if block not in chain[0].present:
                            group.create_task(send_block(block))
            except* OSError as failures:
                events.put_nowait((-1, {"broken": str(failures.exceptions[0])}))

        tasks = [asyncio.ensure_future(listen(k)) for k in range(len(chain))]
        tasks.append(asyncio.ensure_future(feed()))
        try:
            for number in range(len(chain)):
                self._send_on(chain, number, blocks)
            while not all(link.has_ended for link in chain):
                try:
                    async with asyncio.timeout(self.limit_s):
                        number, event = await events.get()
                except TimeoutError:
                    for link in chain:
                        self._fail(link, f"nothing moved for {shown_time(self.limit_s * 1e6)}")
                    return
                self._handle(chain, number, event, blocks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _handle(self, chain: list[_Link], number: int, event: Json, blocks: Blocks) -> None:
        if "sent" in event and number + 1 < len(chain):
            if event["sent"] not in range(blocks.count):
                self._fail_from(
                    chain, number, f"forwarded block {event['sent']!r}, which does not exist"
                )
                return
            chain[number + 1].present.add(int(event["sent"]))
            self._send_on(chain, number + 1, blocks)
        elif "broken" in event and number + 1 < len(chain) and not chain[number + 1].finishing:
            self._fail_from(chain, number + 1, event["broken"])
        elif "ended" in event:
            self._fail_from(chain, number, self._reason(str(event["ended"])))
        elif "done" in event:
            self._finish(chain[number], "put")

    def _reason(self, ended: str) -> str:
        """Returns why a host's relay ended: a file that changed meanwhile is not damaged."""
        if ended.endswith(DAMAGED) and _version(os.fstat(self._fd)) != self._version:
            return f"{self.path.name}: changed while it was being put; put it again"
        return ended

    def _send_on(self, chain: list[_Link], number: int, blocks: Blocks) -> None:
        """Makes a host send the blocks that the next host lacks; finishes a host that has all."""
        relay = chain[number]
        if relay.member.error:
            return
        if number + 1 < len(chain):
            following = chain[number + 1]
            for block in sorted(relay.present - following.present - relay.requested):
                relay.requested.add(block)
                relay.send(send=[block, *blocks.range(block)])
        if len(relay.present) == blocks.count and not relay.finishing:
            relay.finishing = True
            relay.send(finish=self._wanted, mode=self._mode, replace=self.replace)

    def _fail_from(self, chain: list[_Link], number: int, reason: str) -> None:
        """Marks a failed host and the hosts behind it, up to one that has the whole file."""
        name = chain[number].member.host.name
        self._fail(chain[number], reason)
        for link in chain[number + 1 :]:
            if link.finishing:
                return
            self._fail(link, f"nothing arrived: the host before it, {name}, failed")


def is_here(ip: str) -> bool:
    """Reports whether an address belongs to this host."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        try:
            one.bind((ip, 0))
        except OSError:
            return False
    return True
