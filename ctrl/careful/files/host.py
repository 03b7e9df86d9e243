"""A host's files, inside an event loop: what each call of the public API does.

Owns the arguments of the calls, what becomes of failures, and transfers' progress. Connections
are connection.py's; it calls transfer/session.py.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Sequence,
)
from typing import Any, NamedTuple, Self

from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.files.connection import Connections
from careful.transfer import session
from careful.transfer.file.blocks import quietly
from careful.transfer.options import Options, Silent
from careful.transfer.protocol.entries import Attr, Entry, relative
from careful.transfer.report import Report
from careful.transfer.stream.ends import NULL, STDIO

_log = logging.getLogger("careful.files")

Path = str | os.PathLike[str]


class Progress(NamedTuple):
    """How far a transfer is.

    Attributes:
        files_done: complete, left alone or failed.
        files_expected: found so far.
        bytes_done: in place.
        bytes_expected: of all files found so far.
        name: of the file that ended last; "": none so far.
    """

    files_done: int = 0
    files_expected: int = 0
    bytes_done: int = 0
    bytes_expected: int = 0
    name: str = ""


Watcher = Callable[[Progress], object]


class TransferError(CarefulError):
    """Some files of several did not come across; the others did.

    Attributes:
        errors: why, each with its `filename`.
        report: what a transfer without failures returns.
    """

    errors: list[CarefulError]
    report: Report


class AsyncHost:
    """A host's files, for use in one event loop; made by careful.files.aconnect().

    Args:
        find: the way there, which may block; called once a connection.
    """

    def __init__(self, find: Callable[[], Route]) -> None:
        self._connections = Connections(find)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def name(self) -> str:
        """The host, as errors call it."""
        return str(self._connections)

    def __await__(self) -> Generator[Any, None, Self]:
        return self.connected().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connected(self) -> Self:
        """This, with a connection; any call makes one, too."""
        async with self._connections.shared():
            return self

    async def close(self) -> None:
        """End the connection, once; calls under way raise ConnectionAbortedError."""
        await self._connections.close()

    async def stat(self, path: Path) -> Attr:
        """Attributes of a file or directory; of a symlink, its own.

        Raises:
            FileNotFoundError: there is none.
        """
        async with self._connections.shared() as remote:
            return await remote.stat(_path(path))

    async def ls(self, path: Path = ".", *, recursive: bool = False) -> AsyncIterator[Entry]:
        """Entries of a directory, or the one that a file is.

        Args:
            path: of the host; by default, all that it exports.
            recursive: whether all that is below is listed, directories before what they hold.

        Raises:
            FileNotFoundError: there is no such path.
        """
        async for page in self.pages(path, recursive):
            for entry in page:
                yield entry

    async def pages(self, path: Path, recursive: bool) -> AsyncIterator[list[Entry]]:
        """What ls() lists, many at a time."""
        async with self._connections.shared() as remote:
            found = await session.listing(remote, _path(path), recursive)
        yield found

    async def read(self, path: Path, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Bytes of a file or block device, checked by their digest; fewer at its end.

        Args:
            path: of the host.
            offset: where to begin, bytes.
            nbytes: how many; None: to the end.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if offset < 0 or (nbytes is not None and nbytes < 0):
            raise ValueError("offset and nbytes are 0 or more")
        async with self._connections.shared() as remote:
            handle, attr = await remote.open(_path(path))
            try:
                left = max(0, attr.bytes - offset)
                nbytes = left if nbytes is None else min(left, nbytes)
                return await remote.read(handle, offset, nbytes, remote.name(_path(path)))
            finally:
                await quietly(remote.close(handle, _path(path)))

    async def get(
        self,
        source: Path | Sequence[Path],
        target: Path,
        *,
        recursive: bool = False,
        replace: bool = False,
        progress: Watcher | None = None,
    ) -> Report:
        """Fetch files and trees.

        A file appears under its name when it is complete, checked and synced. What is equal is
        left alone. A transfer that was interrupted leaves what came in a partial file; the same
        call goes on with it.

        Args:
            source: of the host: a path, or several; a directory with a slash behind it stands
                for what it holds.
            target: of this machine: a directory to put them in, or, for one file, its name.
            recursive: whether directories come, too.
            replace: whether files that are there and differ are replaced.
            progress: called with a Progress as it goes on.

        Raises:
            FileExistsError: it is there and differs.
            TransferError: some of several files failed; any other error: all of it did.
        """
        options = Options(replace=replace)
        return await self._move(session.get, source, target, recursive, options, progress)

    async def put(
        self,
        source: Path | Sequence[Path],
        target: Path,
        *,
        recursive: bool = False,
        replace: bool = False,
        progress: Watcher | None = None,
    ) -> Report:
        """Send files and trees to a host that exports a directory with :rw; see get().

        Args:
            source: of this machine: a path, or several.
            target: of the host.
            recursive: whether directories go, too.
            replace: whether files that are there and differ are replaced.
            progress: called with a Progress as it goes on.

        Raises:
            FileExistsError: it is there and differs.
            TransferError: some of several files failed; any other error: all of it did.
        """
        options = Options(replace=replace)
        return await self._move(session.put, source, target, recursive, options, progress)

    async def _move(
        self,
        way: Callable[..., Awaitable[Report]],
        source: Path | Sequence[Path],
        target: Path,
        recursive: bool,
        options: Options,
        progress: Watcher | None,
    ) -> Report:
        given = [source] if isinstance(source, str | os.PathLike) else source
        sources, to = [_file(one) for one in given], _file(target)
        async with self._connections.transfer() as remote:
            report = await way(remote, sources, to, recursive, options, _Watched(progress))
        if report.errors:
            raise _failure(report)
        return report


def _text(path: Path) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a PathLike of one, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError("a path has no null character")
    return text


def _path(path: Path) -> str:
    """A path of the host's, as the block service takes it."""
    return relative(_text(path))


def _file(path: Path) -> str:
    """A path of a transfer, at either end: `-` and `null:` are names like any other."""
    text = _text(path)
    return f"./{text}" if text in (STDIO, NULL) else text


def _failure(report: Report) -> CarefulError:
    """What a transfer raises of which not all came across."""
    did = report.files_count or report.equal or report.newer or report.links or report.directories
    if len(report.errors) == 1 and not did:
        return report.errors[0]
    text = f"{len(report.errors)} of {len(report.errors) + report.files_count} files failed"
    error = TransferError(errno.EIO, f"{text}; the first: {report.errors[0]}")
    error.errors, error.report = report.errors, report
    return error


class _Watched(Silent):
    """A transfer's progress, told to whoever wants to know.

    Args:
        watcher: called with each step; what it raises ends the transfer.
    """

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher = watcher
        self._now = Progress()

    def _tell(self, **now: Any) -> None:
        self._now = self._now._replace(**now)
        if self._watcher is not None:
            self._watcher(self._now)

    def expect(self, files: int, nbytes: int) -> None:
        """See options.Progress; likewise below."""
        now = self._now
        self._tell(
            files_expected=now.files_expected + files, bytes_expected=now.bytes_expected + nbytes
        )

    def moved(self, nbytes: int) -> None:
        self._tell(bytes_done=self._now.bytes_done + nbytes)

    def present(self, nbytes: int) -> None:
        self.moved(nbytes)

    def finished(self, name: str) -> None:
        self._tell(files_done=self._now.files_done + 1, name=name)

    def finished_all(self, count: int, names: Callable[[], Iterable[str]]) -> None:
        self._tell(files_done=self._now.files_done + count)

    def note(self, text: str) -> None:
        _log.info("%s", text)

    def failed(self, name: str, text: str, reason: str) -> None:
        """It is raised, in the end."""
