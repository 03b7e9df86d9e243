"""`fleet put`: sends a file through a chain of hosts; each sends on the blocks it has.

Owns the order of hosts, the next block of each, and failures. Each host runs fleet/relay.py and is
told which blocks its predecessor has brought.
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
from careful.fleet.blocks import Blocks, Hop, digests, piece_bytes, planned
from careful.fleet.hosts import Host
from careful.fleet.relay import DAMAGED, LINE_MAX, Sender
from careful.fleet.running import end
from careful.jsonout import Json

#: Pieces of the larger of the two blocks that measure a hop.
_PILOT_PIECES = 4
#: Bytes of a malformed answer that an error shows.
_SHOWN_BYTES = 60


@dataclass
class Member:
    """One host of the chain.

    Attributes:
        host: which.
        state: "put" or "was there"; "" until then, and after a failure.
        error: the reason of its failure.
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
        blocks: how the file was cut; None: no host took part.
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
        self.have: set[int] = set()
        self.asked: set[int] = set()
        self.finishing = False
        self.process: asyncio.subprocess.Process | None = None

    @property
    def is_over(self) -> bool:
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

    def tell(self, **words: object) -> None:
        assert self.process
        assert self.process.stdin
        with suppress(OSError, RuntimeError):  # its output shows whether it has ended
            self.process.stdin.write(json.dumps(words).encode() + b"\n")

    async def hear(self) -> Json:
        """Returns its next line.

        Raises CarefulError if it has ended, or the line is malformed.
        """
        assert self.process
        assert self.process.stdout
        assert self.process.stderr
        try:
            line = await self.process.stdout.readline()
        except ValueError:
            raise CarefulError(0, "sent a line without an end") from None
        with suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
        if line.endswith(b"\n"):
            text = shown(line[:_SHOWN_BYTES].decode(errors="replace").strip())
            raise CarefulError(0, f"said {text!r}, which is not an answer")
        said = (await self.process.stderr.read()).decode(errors="replace").strip().splitlines()
        last = said[-1].removeprefix("carefulctl: ") if said else "its carefulctl ended"
        raise CarefulError(0, shown(last))

    async def ask(self, limit_s: float, **words: object) -> Json:
        """Sends a request and returns its answer, skipping lines that say it is busy."""
        self.tell(**words)
        try:
            while True:
                async with asyncio.timeout(limit_s):
                    said = await self.hear()
                if "busy" not in said:
                    return said
        except TimeoutError:
            raise CarefulError(0, f"did not answer within {limit_s:g} s") from None


def _version(info: os.stat_result) -> tuple[int, int, int]:
    """Returns values that change whenever the file's contents do."""
    return info.st_size, info.st_mtime_ns, info.st_ctime_ns


class Put:
    """Sends one file to several hosts.

    Args:
        path: the file, here.
        limit_s: longest time without progress, seconds.
        replace: whether another file of its name is replaced.
        told: called with each host that failed, or that has the file.
    """

    def __init__(
        self, path: Path, limit_s: float, replace: bool, told: Callable[[Member], None]
    ) -> None:
        self.path, self.limit_s, self.replace, self.told = path, limit_s, replace, told
        self._wanted: list[str] = []
        self._fd, self._begun, self._bytes, self._mode = -1, 0.0, 0, 0
        self._version = 0, 0, 0

    async def run(self, hosts: Sequence[Host]) -> Result:
        """Sends the file. Raises CarefulError or OSError if it cannot be read."""
        self._begun = time.monotonic()
        links = [_Link(Member(one)) for one in hosts]
        result = Result([one.member for one in links])
        self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            info = os.fstat(self._fd)
            self._bytes, self._mode = info.st_size, info.st_mode & 0o777
            self._version = _version(info)
            self._wanted = await asyncio.to_thread(digests, self._fd, self._bytes)
            await asyncio.gather(*(self._begin(one) for one in links))
            chain = [one for one in links if not one.is_over]
            if chain:
                await self._through(chain, result)
        finally:
            os.close(self._fd)
            await asyncio.gather(*(self._end(one) for one in links))
        result.took_s = time.monotonic() - self._begun
        return result

    async def _end(self, link: _Link) -> None:
        if link.process is None:
            return
        assert link.process.stdin
        link.process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(link.process.wait(), 1.0)
        await end(link.process)

    def _fail(self, link: _Link, why: object) -> None:
        if not link.is_over:
            link.member.error = shown(str(why))
            self.told(link.member)

    def _over(self, link: _Link, state: str) -> None:
        link.member.state = state
        link.member.took_s = time.monotonic() - self._begun
        self.told(link.member)

    async def _begin(self, link: _Link) -> None:
        try:
            await link.start()
            first = await link.ask(self.limit_s, name=self.path.name, bytes=self._bytes)
            if first.get("whole") == self._wanted:
                self._over(link, "was there")
            elif first.get("whole") is not None and not self.replace:
                self._fail(link, f"{self.path.name} exists there and differs (--replace)")
            else:
                found = await link.ask(self.limit_s, begin=True)
                pieces = found.get("pieces")
                link.pieces = pieces if isinstance(pieces, list) else []
        except OSError as error:
            self._fail(link, error.strerror or error)

    async def _through(self, chain: list[_Link], result: Result) -> None:
        """Sends from here to the first host that accepts it, and along the others."""
        while chain:
            try:
                async with (
                    files.aconnect(chain[0].member.host.address) as first,
                    Sender(first, self.path.name, self._fd) as source,
                ):
                    result.hop = await self._measured(chain, source)
                    await self._along(chain, source, result)
                    return
            except OSError as error:
                self._fail(chain[0], error)
                chain = chain[1:]

    async def _along(self, chain: list[_Link], source: Sender, result: Result) -> None:
        blocks = result.blocks = planned(self._bytes, len(chain), result.hop)
        for one in chain:
            one.have = blocks.there(self._wanted, one.pieces)
            one.member.resumed_blocks = len(one.have)
        for here, there in pairwise(chain):
            here.tell(next=there.member.host.address)
        await self._move(chain, source, blocks)

    async def _measured(self, chain: list[_Link], source: Sender) -> Hop | None:
        """Measures a hop by the first blocks of the file, which count as sent."""
        size = piece_bytes(self._bytes)
        if self._bytes < _PILOT_PIECES * size:
            return None

        async def took_us(nbytes: int) -> float:
            begun = time.monotonic()
            await source.send(0, nbytes)
            return (time.monotonic() - begun) * 1e6

        async def note_us(link: _Link) -> float:
            begun = time.monotonic()
            with suppress(OSError):
                await link.ask(self.limit_s, ping=True)
            return (time.monotonic() - begun) * 1e6

        small = min([await took_us(size) for _ in range(3)])
        large = min([await took_us(_PILOT_PIECES * size) for _ in range(2)])
        notes = await asyncio.gather(*map(note_us, chain))
        return Hop.by((size, small), (_PILOT_PIECES * size, large), statistics.median(notes))

    async def _move(self, chain: list[_Link], source: Sender, blocks: Blocks) -> None:
        events: asyncio.Queue[tuple[int, Json]] = asyncio.Queue()

        async def listen(number: int) -> None:
            with suppress(OSError):
                try:
                    while True:
                        events.put_nowait((number, await chain[number].hear()))
                except OSError as error:
                    events.put_nowait((number, {"ended": error.strerror or str(error)}))

        async def feed() -> None:
            async def one(block: int) -> None:
                await source.send(*blocks.range(block))
                events.put_nowait((-1, {"sent": block}))

            try:
                async with asyncio.TaskGroup() as group:
                    for block in range(blocks.count):
                        if block not in chain[0].have:
                            group.create_task(one(block))
            except* OSError as several:
                events.put_nowait((-1, {"broken": str(several.exceptions[0])}))

        tasks = [asyncio.ensure_future(listen(k)) for k in range(len(chain))]
        tasks.append(asyncio.ensure_future(feed()))
        try:
            for number in range(len(chain)):
                self._onward(chain, number, blocks)
            while not all(one.is_over for one in chain):
                try:
                    async with asyncio.timeout(self.limit_s):
                        number, said = await events.get()
                except TimeoutError:
                    for one in chain:
                        self._fail(one, f"nothing moved for {self.limit_s:g} s")
                    return
                self._hear(chain, number, said, blocks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hear(self, chain: list[_Link], number: int, said: Json, blocks: Blocks) -> None:
        if "sent" in said and number + 1 < len(chain):
            if said["sent"] not in range(blocks.count):
                self._break(
                    chain, number, f"forwarded block {said['sent']!r}, which does not exist"
                )
                return
            chain[number + 1].have.add(int(said["sent"]))
            self._onward(chain, number + 1, blocks)
        elif "broken" in said and number + 1 < len(chain) and not chain[number + 1].finishing:
            self._break(chain, number + 1, said["broken"])
        elif "ended" in said:
            self._break(chain, number, self._why(str(said["ended"])))
        elif "done" in said:
            self._over(chain[number], "put")

    def _why(self, ended: str) -> str:
        """Returns why a host's relay ended: a file that changed meanwhile is not damaged."""
        if ended.endswith(DAMAGED) and _version(os.fstat(self._fd)) != self._version:
            return f"{self.path.name}: changed while it was being put; put it again"
        return ended

    def _onward(self, chain: list[_Link], number: int, blocks: Blocks) -> None:
        """Makes a host send blocks that the next host lacks; finishes the host if it has all."""
        here = chain[number]
        if here.member.error:
            return
        if number + 1 < len(chain):
            there = chain[number + 1]
            for block in sorted(here.have - there.have - here.asked):
                here.asked.add(block)
                here.tell(send=[block, *blocks.range(block)])
        if len(here.have) == blocks.count and not here.finishing:
            here.finishing = True
            here.tell(finish=self._wanted, mode=self._mode, replace=self.replace)

    def _break(self, chain: list[_Link], number: int, why: str) -> None:
        """Marks a failed host and those behind it, up to one that has the whole file."""
        name = chain[number].member.host.name
        self._fail(chain[number], why)
        for one in chain[number + 1 :]:
            if one.finishing:
                return
            self._fail(one, f"nothing arrived: the host before it, {name}, failed")


def is_here(ip: str) -> bool:
    """Reports whether an address is one of this host's."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        try:
            one.bind((ip, 0))
        except OSError:
            return False
    return True
