"""One host's part of `fleet put`: receives a file in parts, and sends its blocks on.

Reads requests as lines of JSON on standard input, and answers on standard output. The partial file
gets its name only when it is whole.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self, TypeVar

from careful import files
from careful.errors import CarefulError, about, from_os, shown
from careful.fleet.blocks import UNDER_WAY, digests
from careful.jsonout import Json
from careful.transfer.file.partial_file import Partial, sync_directory

#: The longest line: the digests of 65,536 pieces.
LINE_MAX = 1 << 23
#: Error of `finish` if a digest is wrong.
DAMAGED = "was damaged on its way; put it again"
#: A relay that reads or syncs a large file reports this often that it is busy, seconds.
_BUSY_S = 1.0
_T = TypeVar("_T")
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def part_name(name: str) -> str:
    """Returns the name of a partial file."""
    return f".{name}.fleet-part"


class Sender:
    """Sends blocks of a local file into another host's open partial file.

    A block is one request; its answer waits behind the blocks that the other host sends on.

    Args:
        host: the other host.
        name: of the file.
        fd: the local file.
    """

    def __init__(self, host: files.AsyncHost, name: str, fd: int) -> None:
        self._part, self._fd = host.open(part_name(name), "r+", sync=False), fd
        self._slots = asyncio.Semaphore(UNDER_WAY)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(OSError):
            await self._part.close()

    async def send(self, at: int, nbytes: int) -> None:
        async with self._slots:
            data = os.pread(self._fd, nbytes, at)
            await self._part.write_at(data, at)


class Part(Partial):
    """A partial file in a directory of this host. Raises CarefulError: the name is not valid, or
    another program has the file.
    """

    def __init__(self, folder: Path, name: str) -> None:
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise CarefulError(errno.EINVAL, "is not a file name", name)
        self._name = name
        self._prepare(str(folder / name), 0, True, str(folder))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.fd >= 0:
            super().close()
        self.folder.close()

    def close(self) -> None:
        """Leaves the file open until the end: its blocks are sent on after finish(), too."""

    def whole_digests(self, nbytes: int) -> list[str] | None:
        """Returns the digests of the file with the final name; None: no file; []: another size."""
        try:
            fd = os.open(self._name, _READ, dir_fd=self.folder.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise from_os(error, self._name) from None
        try:
            has_same_size = os.fstat(fd).st_size == nbytes
            return digests(fd, nbytes) if has_same_size else []
        finally:
            os.close(fd)

    def begin(self, nbytes: int) -> list[str]:
        """Opens the partial file with room for its size; returns the digests of its pieces."""
        with about(part_name(self._name)):
            self.fd = self._open_locked(part_name(self._name))
        present = digests(self.fd, nbytes)
        os.ftruncate(self.fd, nbytes)
        return present

    def finish(self, wanted: list[str], nbytes: int, mode: int, replace: bool) -> None:
        """Checks the file, syncs it and gives it its name. Raises CarefulError: the file is damaged
        and keeps its good pieces, or the name exists.
        """
        if os.fstat(self.fd).st_size != nbytes or digests(self.fd, nbytes) != wanted:
            raise CarefulError(errno.EIO, DAMAGED, self._name)
        self._mode, self.replace = mode & 0o777, replace
        self.commit(sync=True, exact=True)
        sync_directory(str(Path(self.path).parent))


def _answer(**words: object) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


async def _in_thread(work: Callable[..., _T], *arguments: object) -> _T:
    """Runs work that may take minutes in a thread, and reports meanwhile that the host is busy."""
    job = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    while not (await asyncio.wait([job], timeout=_BUSY_S))[0]:
        with suppress(OSError):  # the answer shows whether a reader is left
            _answer(busy=True)
    return await job


class _Relay:
    """Executes the requests of standard input."""

    def __init__(self, folder: Path, config: Path | None, instance: str | None) -> None:
        self._folder, self._config, self._instance = folder, config, instance
        self._sender: Sender | None = None
        self._is_broken = False

    async def _send(self, at: int, nbytes: int, block: int) -> None:
        assert self._sender
        try:
            await self._sender.send(at, nbytes)
        except OSError as error:
            if not self._is_broken:
                self._is_broken = True
                _answer(broken=shown(str(error)))
            return
        _answer(sent=block)

    async def run(self, lines: asyncio.StreamReader) -> None:
        head = json.loads(await lines.readline())
        name, nbytes = str(head["name"]), int(head["bytes"])
        with Part(self._folder, name) as part:
            _answer(whole=await _in_thread(part.whole_digests, nbytes))
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                while line := await lines.readline():
                    message = json.loads(line)
                    if "next" in message:
                        await self._connect(str(message["next"]), name, part.fd, stack)
                    elif "send" in message and self._sender and not self._is_broken:
                        block, at, size = map(int, message["send"])
                        group.create_task(self._send(at, size, block))
                    else:
                        await self._execute(message, part, nbytes)

    async def _connect(self, host: str, name: str, fd: int, stack: AsyncExitStack) -> None:
        connecting = files.aconnect(host, instance=self._instance, config=self._config)
        try:
            sender = Sender(await stack.enter_async_context(connecting), name, fd)
            self._sender = await stack.enter_async_context(sender)
        except OSError as error:
            _answer(broken=shown(str(error)))

    async def _execute(self, request: Json, part: Part, nbytes: int) -> None:
        if "begin" in request:
            _answer(pieces=await _in_thread(part.begin, nbytes))
        elif "ping" in request:
            _answer(pong=True)
        elif "finish" in request:
            wanted = [str(one) for one in request["finish"]]
            mode, replace = int(request["mode"]), bool(request["replace"])
            await _in_thread(part.finish, wanted, nbytes, mode, replace)
            _answer(done=True)


async def serve(folder: Path, config: Path | None, instance: str | None) -> None:
    """Executes the requests of standard input until its end. Raises CarefulError: a request failed;
    the failure was answered.

    Args:
        folder: the directory that this host exports.
        config: the configuration; None: as carefulctl finds it.
        instance: the name of the carefuld.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        await _Relay(folder, config, instance).run(reader)
    except BaseExceptionGroup as group:  # the first failure is enough to report
        raise group.exceptions[0] from None
    except (ValueError, KeyError, TypeError) as error:
        text = f"it received a message that it does not know: {error}"
        raise CarefulError(errno.EPROTO, text) from None
    finally:
        with suppress(OSError):
            sys.stdout.flush()
