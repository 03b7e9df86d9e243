"""A host's files, inside an event loop: the calls of the public API, and their failures."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Self, Unpack

from careful.daemon.route import Route
from careful.errors import CarefulError
from careful.files import names
from careful.files.connection import Connections
from careful.files.file import AsyncFile, Data, Mode, check_range, undone_if_cancelled, write_whole
from careful.files.options import TransferOptions, Watched, Watcher, check_within, options_of
from careful.transfer.options import Mounts
from careful.transfer.protocol.entries import Attr, Entry, relative
from careful.transfer.result import Result
from careful.transfer.run import session
from careful.transfer.run.verify import Verified, verify
from careful.transfer.stream.local_end import NULL, STDIO
from careful.transfer.tree.direction import RemoteEnd

Path = str | os.PathLike[str]


class TransferError(CarefulError):
    """Some of several files failed; the others were copied.

    Attributes:
        errors: the failures, each with its `filename`.
        report: the result that a transfer without failures returns.
    """

    errors: list[CarefulError]
    report: Result


class AsyncHost:
    """A host's files, for use in one event loop; made by careful.files.aconnect().

    Args:
        name: the host's name in errors.
        find_route: returns the route to the host, and may block; called for each new connection.
        mounts: remembers mount points of the trees that are moved, or None.
    """

    def __init__(
        self, name: str, find_route: Callable[[], Route], mounts: Mounts | None = None
    ) -> None:
        self._connections = Connections(name, find_route)
        self._mounts = mounts

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{', closed' * self._connections.closed}>"

    @property
    def name(self) -> str:
        """Returns the host's name in errors."""
        return self._connections.host

    def __await__(self) -> Generator[object, None, Self]:
        return self.connected().__await__()

    async def __aenter__(self) -> Self:
        return await self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connected(self) -> Self:
        """Connects, as any call does; returns this object."""
        async with self._connections.shared():
            return self

    async def close(self) -> None:
        """Closes the connection, once; calls under way raise ConnectionAbortedError."""
        await self._connections.close()

    async def stat(self, path: Path) -> Attr:
        """Returns the attributes of a file or directory; follows symlinks. Raises
        FileNotFoundError: the path does not exist.
        """
        async with self._connections.shared() as shared:
            return await shared.remote.stat(_path(path))

    async def ls(self, path: Path = ".", *, recursive: bool = False) -> AsyncIterator[Entry]:
        """Lists a directory, or the entry of a single file. Raises FileNotFoundError: the path does
        not exist.

        Args:
            path: of the host; by default, the whole export.
            recursive: whether to list the whole tree, directories before their contents.
        """
        async for page in self.pages(path, recursive):
            for entry in page:
                yield entry

    async def pages(self, path: Path, recursive: bool) -> AsyncIterator[list[Entry]]:
        """Lists as ls() does, many entries at a time."""
        async with self._connections.with_handle() as shared:
            listing = session.spooled(shared.remote, _path(path), recursive)
            spool = await undone_if_cancelled(listing, lambda spool: asyncio.to_thread(spool.close))
        with spool:
            for page in spool.pages():
                yield page

    def open(self, path: Path, mode: Mode = "r", *, sync: bool = True) -> AsyncFile:
        """Opens a file or block device to read ranges of it, or to write in place.

        Use `async with` on the result, or await it. Raises FileNotFoundError: the file does not
        exist.

        Args:
            path: of the host.
            mode: "r": to read; "r+": to read and write an existing file.
            sync: whether close() makes writes durable.
        """
        return AsyncFile(self._connections, _path(path), mode, sync)

    @asynccontextmanager
    async def opened(
        self, path: Path, mode: Mode = "r", sync: bool = True
    ) -> AsyncIterator[AsyncFile]:
        """Yields a file that is open during one call; waits for a slot."""
        connections, name = self._connections, _path(path)
        async with (
            connections.handle_slots,
            AsyncFile(connections, name, mode, sync, waits=True) as file,
        ):
            yield file

    async def read(self, path: Path, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Reads bytes of a file or block device, checked by their digest; fewer at its end. Raises
        FileNotFoundError: the file does not exist.

        Args:
            path: of the host.
            offset: where to begin, bytes.
            nbytes: how many; None: to the end.
        """
        async with self.opened(path) as file:
            return await file.read_at(offset, nbytes)

    async def readinto(self, path: Path, buffer: bytearray | memoryview, offset: int = 0) -> int:
        """Reads bytes of a file into memory; returns their number, fewer at its end. Raises
        FileNotFoundError: the file does not exist.

        Args:
            path: of the host.
            buffer: receives as many bytes as it has.
            offset: where to begin, bytes.
        """
        async with self.opened(path) as file:
            return await file.readinto(buffer, offset)

    async def write(
        self,
        path: Path,
        data: Data,
        offset: int | None = None,
        *,
        replace: bool = False,
        sync: bool = True,
        mode: int = 0o666,
    ) -> int:
        """Writes bytes, checked by their digest; returns their number. Raises FileExistsError: the
        file exists, and neither offset nor replace is given.

        Args:
            path: of the host.
            data: the bytes.
            offset: where to write them in an existing file or block device, in place; None: the
                bytes are a new file, which appears when it is complete.
            replace: whether a new file may replace an existing one.
            sync: whether the bytes are durable at the host when this returns.
            mode: permission bits of a new file; the umask is applied. A replaced file keeps its
                own.
        """
        name = _path(path)
        if offset is None:
            async with self._connections.with_handle() as shared:
                with _in_python():
                    await write_whole(shared, name, data, mode, replace, sync)
                return memoryview(data).nbytes
        check_range(offset)
        async with self.opened(name, "r+", sync) as file:
            return await file.write_at(data, offset)

    async def append(self, path: Path, data: Data, *, sync: bool = True, mode: int = 0o666) -> int:
        """Writes bytes at the end of a file, which is made if missing; returns their number.

        Up to 2 MiB are written in one step, not mixed with other programs' appends. Raises OSError:
        ENOTSUP: the host's careful is too old.

        Args:
            path: of the host.
            data: the bytes.
            sync: whether the bytes are durable at the host when this returns.
            mode: permission bits of a new file; the umask is applied.
        """
        async with self._connections.with_handle() as shared:
            await names.append(shared.remote, _path(path), data, mode, sync)
        return memoryview(data).nbytes

    async def rename(
        self, source: Path, target: Path, *, replace: bool = False, sync: bool = True
    ) -> None:
        """Renames a file, a symlink or a directory in one step.

        Args:
            source: of the host; a symlink is renamed itself.
            target: of the host: the new name. A rename to the same name does nothing.
            replace: whether to replace an existing file or empty directory.
            sync: whether the name is durable at the host when this returns.

        Raises:
            FileExistsError: the target exists, and replace is not given.
            FileNotFoundError: the source, or the directory above the target, does not exist.
            OSError: EINVAL: a directory would move into itself; EXDEV: the target is on another
                file system or export; ENOTSUP: the host's careful is too old.
        """
        old, new = _path(source), _path(target)
        async with self._connections.with_handle() as shared:
            with _in_python():
                await names.rename(shared.remote, old, new, replace or old == new, sync)

    async def mkdir(
        self, path: Path, mode: int = 0o777, *, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Makes a directory that its owner can write to. Raises FileExistsError: the path exists.
        Raises FileNotFoundError: the directory above it does not exist.

        Args:
            path: of the host.
            mode: permission bits; the umask is applied.
            parents: whether to make missing directories above it.
            exist_ok: whether an existing directory is no error.
        """
        async with self._connections.with_handle() as shared:
            await names.mkdir(shared.remote, _path(path), mode, parents, exist_ok)

    async def remove(self, path: Path) -> None:
        """Removes a file, a symlink or an empty directory. Raises FileNotFoundError: the path does
        not exist. Raises OSError: ENOTEMPTY: the directory is not empty; EBUSY: a transfer is using
        the file.

        Args:
            path: of the host.
        """
        async with self._connections.with_handle() as shared:
            await names.remove(shared.remote, _path(path))

    async def is_link(self, path: Path) -> bool:
        """Reports whether a name exists and is a symlink."""
        async with self._connections.with_handle() as shared:
            return await RemoteEnd(shared.remote).link(_path(path)) is not None

    async def verify(
        self, path: Path, target: Path, *, recursive: bool = False, block_bytes: int = 1 << 20
    ) -> Verified:
        """Compares a file or tree with one of this machine; only digests cross the network. Raises
        FileNotFoundError: one of the two does not exist.

        Args:
            path: of the host.
            target: of this machine.
            recursive: whether to compare directories, too.
            block_bytes: bytes that one digest covers.

        Returns:
            The result; `differences` is empty if all is equal.
        """
        check_within("block_bytes", block_bytes)
        async with self._connections.transfer() as remote:
            with _in_python():
                return await verify(remote, _path(path), _text(target), recursive, block_bytes)

    async def get(
        self,
        source: Path | Sequence[Path],
        target: Path,
        *,
        recursive: bool = False,
        progress: Watcher | None = None,
        **options: Unpack[TransferOptions],
    ) -> Result:
        """Fetches files and trees.

        A file appears under its name when it is complete, checked and synced. Equal files are left
        alone. An interrupted transfer leaves a partial file, and the same call resumes it. Raises
        FileExistsError: the target exists and differs. Raises TransferError: some of several files
        failed; any other error: all failed.

        Args:
            source: of the host: a path, or several; a directory with a trailing slash
                stands for its contents.
            target: of this machine: a directory to put them in, or a single file's name.
            recursive: whether to fetch directories, too; archive implies it.
            progress: called with a Progress after each step; its exception ends the transfer.
            **options: replace=True, update=True ...: see TransferOptions.
        """
        return await self._move(session.get, source, target, recursive, progress, options)

    async def put(
        self,
        source: Path | Sequence[Path],
        target: Path,
        *,
        recursive: bool = False,
        progress: Watcher | None = None,
        **options: Unpack[TransferOptions],
    ) -> Result:
        """Sends files and trees to a host that exports a directory with :rw.

        Arguments, result and errors are those of get(), with the ends exchanged.
        """
        return await self._move(session.put, source, target, recursive, progress, options)

    async def _move(
        self,
        run: Callable[..., Awaitable[Result]],
        source: Path | Sequence[Path],
        target: Path,
        recursive: bool,
        progress: Watcher | None,
        keywords: TransferOptions,
    ) -> Result:
        recursive = recursive or keywords.get("archive", False)
        options = replace(options_of(recursive, keywords), mounts=self._mounts)
        paths = [source] if isinstance(source, str | os.PathLike) else source
        sources, target_path = [_file(one) for one in paths], _file(target)
        async with self._connections.transfer() as remote:
            with _in_python():
                report = await run(
                    remote, sources, target_path, recursive, options, Watched(progress)
                )
        if report.errors:
            raise _failure(report)
        return report


def _text(path: Path) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"a path is a str or a PathLike of one, not {type(text).__name__}")
    if "\0" in text:
        raise ValueError("a path must not contain a null character")
    return text


def _path(path: Path) -> str:
    return relative(_text(path))


def _file(path: Path) -> str:
    """Returns a transfer's path; `-` and `null:` are ordinary names here."""
    text = _text(path)
    return f"./{text}" if text in (STDIO, NULL) else text


@contextmanager
def _in_python() -> Iterator[None]:
    """Lets errors recommend keywords instead of the command's options."""
    try:
        yield
    except CarefulError as error:
        error.in_python()
        raise


def _failure(report: Result) -> CarefulError:
    for error in report.errors:
        error.in_python()
    some_done = report.files_count or report.equal or report.newer or report.links
    if len(report.errors) == 1 and not (some_done or report.directories):
        return report.errors[0]
    text = f"{len(report.errors)} of {len(report.errors) + report.files_count} files failed"
    failure = TransferError(errno.EIO, f"{text}; the first: {report.errors[0]}")
    failure.errors, failure.report = report.errors, report
    return failure
