"""Checks a client against any answers of a server: lists, gets, puts, compares.

The server is tests/support/hostile.py's, without a socket. An input chooses the server's entries,
the client's command, and the corrupted answers. A command must end with its result or a
CarefulError, within a bounded number of questions, and write nothing outside its target.
fuzz_client.py looks for inputs.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import random
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import careful.transfer.file.journal
import careful.transfer.protocol.batch
import careful.transfer.protocol.block
from careful._abi import ffi, lib
from careful.daemon.client import Answer as Heard
from careful.errors import CarefulError
from careful.render.files import listing as shown_as
from careful.transfer.file.find_partials import find_remote
from careful.transfer.options import Options, Progress
from careful.transfer.protocol.block import BlockClient
from careful.transfer.run import session
from careful.transfer.run.verify import verify
from fake_daemon import Answer
from hostile import HostileDaemon, Told

CORPUS = Path(__file__).parent / "corpus" / "client"
#: Most questions of one command, because a hostile server may never end an exchange.
QUESTIONS_MAX = 2000
NAMES = (
    *(b"a", b"d", b"d/x", b"d/y", b"d/e", b"d/e/z", b"b", b".", b"..", b"/", b"a/", b""),
    *(b"\xff\xfe", b"n" * 255, b"n" * 256, b"x\0y", b"\x1b[2J", b".careful-0000000000000001.part"),
    *(b"D", b"d/../../out", b"*", b"d/[x]"),
)
KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK, stat.S_IFIFO, stat.S_IFBLK, stat.S_IFSOCK, 0)
NUMBERS = (0, 1, 7, 8, 255, 256, 4095, 65535, 1 << 31, (1 << 31) - 1, (1 << 32) - 1)
LARGE = (*NUMBERS, 1 << 32, 1 << 40, 1 << 50, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
OPTIONS = (
    Options(fsync="none"),
    Options(block_bytes=1024, fsync="none", replace=True, checksum=True, sparse=True),
    Options(
        block_bytes=4096, fsync="none", preserve=True, links=True, hard_links=True, xattrs=True
    ),
    Options(fsync="none", replace=True, update=True, delete=True, blake3=True),
    Options(block_bytes=1 << 16, fsync="none", replace=True, blake3=True, sparse=True),
    Options(fsync="none", dry_run=True, replace=True, delete=True, checksum=True),
)


class Given:
    """An input, read from front to back; zeros follow."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, nbytes: int = 1) -> int:
        self.at += nbytes
        return int.from_bytes(self.data[self.at - nbytes : self.at].ljust(nbytes, b"\0"), "big")

    def one_of(self, values: tuple[Any, ...]) -> Any:
        return values[self.number() % len(values)]

    @property
    def is_empty(self) -> bool:
        return self.at >= len(self.data)


class Bend:
    """A corruption of an answer."""

    def __init__(self, given: Given) -> None:
        self.kind, self.place = given.number(), given.number(2)
        self.value = given.one_of(NUMBERS) if self.kind & 128 else given.number(4)

    def args(self, args: list[int]) -> list[int]:
        args[self.place % 4] = self.value & 0xFFFFFFFF
        return args

    def data(self, data: bytes) -> bytes:
        at = self.place % max(1, len(data))
        match self.kind % 4:
            case 0:
                return data[:at] + bytes([self.value & 255]) + data[at + 1 :]
            case 1:
                at &= ~3
                word = (self.value & 0xFFFFFFFF).to_bytes(4, "big")
                return (data[:at] + word + data[at + 4 :])[: max(len(data), 4)]
            case 2:
                return data[:at]
            case _:
                return data + bytes(1 + self.value % 600)


class Server(HostileDaemon):
    """The server; it corrupts the answers to requests and GETs whose numbers the input chooses."""

    def __init__(self, given: Given) -> None:
        super().__init__(Path("/none"), Path("/none"), serve=False)
        self.asked_count = 0
        entries = []
        for _ in range(given.number() % 7):
            name = os.fsdecode(given.one_of(NAMES))
            data = random.Random(given.number()).randbytes(given.number(2) * 2 % 9000)
            mode = given.one_of(KINDS) | 0o644
            if mode & stat.S_IFLNK == stat.S_IFLNK:
                data = data[:40].replace(b"\0", b"/")
            reported = Told(
                name, mode, data, inode=given.number() % 4, nlink=1 + given.number() % 3
            )
            if given.number() & 1:
                reported = reported._replace(
                    bytes=given.one_of(LARGE), allocated=given.one_of(LARGE)
                )
            entries.append(reported)
        inner = [one._replace(name=one.name[2:]) for one in entries if one.name.startswith("d/")]
        self.told = {".": entries, "d": inner, "d/e": inner[:1]}
        self.bends: dict[int, list[Bend]] = {}
        while not given.is_empty and len(self.bends) < 20:
            at = given.number() % 24
            self.bends.setdefault(at, []).append(Bend(given))

    def ask(self, question: Any, payload: bytes, fds: list[int], files: dict[int, int]) -> Answer:
        answer = self._answer(question, payload, fds, files)
        if question.op != lib.CAREFUL_IPC_REQUEST:
            return answer
        self.asked_count += 1
        for bend in self.bends.get(self.asked_count, ()):
            kind = bend.kind >> 4 & 3
            if kind == 0:
                answer = replace(answer, payload=bend.data(answer.payload)[:4000])
            elif kind == 1:
                answer = replace(answer, args=bend.args(list(answer.args)))
            elif kind == 2:
                answer = replace(answer, status=-(bend.value & 0xFFF))
        return answer

    def _run(self, handler: int, args: list[int], payload: bytes) -> Answer:
        if handler == lib.CAREFUL_BLOCK_MKDIR:
            return Answer()
        try:
            return super()._run(handler, args, payload)
        except (KeyError, AssertionError):  # no such handle, or too few bytes
            return Answer(-errno.EBADF)

    def _move(self, q: Any, files: dict[int, int]) -> Answer:
        answer = super()._move(q, files)
        if q.op != lib.CAREFUL_IPC_GET:
            return answer
        for bend in self.bends.get(self.asked_count, ()):
            if bend.kind >> 4 & 3 == 3 and bend.kind & 64:
                size = answer.values.get("bytes", 0)
                data = os.pread(files[q.file], size, q.file_off)
                os.pwrite(files[q.file], bend.data(data)[:size].ljust(size, b"\0"), q.file_off)
        return answer

    def close(self) -> None:
        for handle in list(self.handles):
            self._close(handle, True)


class Carefuld:
    """The client's carefuld, like AsyncClient; it delivers the server's answers."""

    failed = False

    def __init__(self, server: Server) -> None:
        self.server, self.files, self.asked = server, dict[int, int](), 0
        self.client = SimpleNamespace(name="carefuld")

    async def ask(
        self,
        op: int,
        payload: bytes = b"",
        fd: int | None = None,
        on_unheard: object = None,
        **fields: Any,
    ) -> Heard:
        await asyncio.sleep(0)
        return self._ask(op, payload, fd, fields)

    def tell(self, op: int, **fields: Any) -> None:
        self._ask(op, b"", None, fields)

    def _ask(self, op: int, payload: bytes, fd: int | None, fields: dict[str, Any]) -> Heard:
        self.asked += 1
        if self.asked > QUESTIONS_MAX:
            raise CarefulError(errno.ENOTCONN, "carefuld ended", "carefuld")
        question = ffi.new("struct careful_ipc *", fields)
        question.version, question.op, question.payload_bytes = (
            lib.CAREFUL_IPC_VERSION,
            op,
            len(payload),
        )
        fds = [os.dup(fd)] if fd is not None else []
        answer = self.server.ask(question, payload, fds, self.files)
        values = {"peer": 3, "file": 0, "bytes": 0, "digest": 0, **answer.values}
        return Heard(
            answer.status,
            values["peer"],
            values["file"],
            values["bytes"],
            values["digest"],
            tuple(answer.args),
            answer.payload,
        )

    def close(self) -> None:
        for fd in self.files.values():
            os.close(fd)


Command = Callable[[BlockClient, Path, Options], Coroutine[Any, Any, object]]


def get(*sources: str) -> Command:
    return lambda remote, target, options: session.get(
        remote, sources, str(target), True, options, Progress()
    )


async def twice(remote: BlockClient, target: Path, options: Options) -> object:
    await session.get(remote, ["d"], str(target), True, options, Progress())
    return await session.get(remote, ["d"], str(target), True, options, Progress())


async def put(remote: BlockClient, target: Path, options: Options) -> object:
    (target / "own").mkdir()
    (target / "own/x").write_bytes(b"x" * 5000)
    (target / "own/small").write_bytes(b"small")
    (target / "own/link").symlink_to("x")
    return await session.put(remote, [str(target / "own")], "d", True, options, Progress())


async def put_file(remote: BlockClient, target: Path, options: Options) -> object:
    (target / "a").write_bytes(b"x" * 5000)
    return await session.put(remote, [str(target / "a")], "a", False, options, Progress())


def ls(long: bool, recursive: bool) -> Command:
    async def list_it(remote: BlockClient, target: Path, options: Options) -> object:
        with await session.spooled_matching(remote, "d" if long else "*", recursive) as spool:
            lines = list(shown_as.lines(spool.pages(), long))
            return lines, json.dumps([shown_as.entry(one) for p in spool.pages() for one in p])

    return list_it


async def stored(remote: BlockClient, target: Path, options: Options) -> object:
    """Reads a range like careful.files."""
    handle, attr = await remote.open("a")
    data = await remote.read(handle, 0, min(attr.bytes, 100), "a")
    return data, await remote.close(handle, "a")


COMMANDS: tuple[Command, ...] = (
    *(ls(False, False), ls(True, False), ls(True, True), ls(False, True)),
    *(get("a"), get("d"), get(""), get("a", "b"), get("*"), get("d/"), twice, put, put_file),
    lambda remote, target, options: verify(remote, "d", str(target), True, 4096),
    lambda remote, target, options: verify(remote, "a", str(target / "a"), False, 1024),
    lambda remote, target, options: find_remote(remote, ".", True),
    *(get("a"), stored),
)


def _check_text(text: str) -> None:
    """Checks that the text is one line without control characters."""
    assert text
    assert not any(one < " " or "\x7f" <= one < "\xa0" for one in text), repr(text)


async def _run(data: bytes, target: Path) -> None:
    given = Given(data)
    command, options = given.one_of(COMMANDS), given.one_of(OPTIONS)
    server = Server(given)
    ours = Carefuld(server)
    try:
        remote = BlockClient(ours, 3, "h2")  # type: ignore[arg-type]
        result = await command(remote, target, options)
        for name, text in getattr(result, "failures", ()):
            _check_text(f"{name}: {text}")
    except CarefulError as error:
        _check_text(str(error))
    finally:
        ours.close()
        server.close()


def check(data: bytes) -> None:
    """Runs one input. Raises AssertionError, or the command's unexpected exception."""
    careful.transfer.protocol.block._FULL_S = 0.0
    careful.transfer.file.journal._BLOCKS_MAX = 1 << 10
    careful.transfer.protocol.batch._ATTEMPTS = 2
    place = Path(tempfile.mkdtemp(prefix="fuzz-client-", dir="/dev/shm"))
    try:
        target, outside = place / "to", place / "out"
        target.mkdir()
        outside.write_bytes(b"kept")
        asyncio.run(_run(data, target))
        assert sorted(one.name for one in place.iterdir()) == ["out", "to"]
        assert outside.read_bytes() == b"kept"
        assert stat.S_IMODE(outside.stat().st_mode) == 0o644
    finally:
        shutil.rmtree(place)


def kept() -> list[bytes]:
    """Returns the kept inputs."""
    return [path.read_bytes() for path in sorted(CORPUS.iterdir())]


def inputs(seed: int) -> Iterator[bytes]:
    """Yields inputs without end: random ones, and mutated kept ones."""
    rng, old = random.Random(seed), kept()
    while True:
        data = bytearray(rng.choice(old) if old and rng.random() < 0.5 else rng.randbytes(80))
        for _ in range(rng.randrange(6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data[: rng.randrange(4, len(data) + 1)])
