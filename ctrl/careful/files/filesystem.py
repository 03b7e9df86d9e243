"""A host's files as an fsspec file system: `careful://HOST/PATH` for pandas, Dask, zarr and others.

Owns what fsspec's words mean here. What moves bytes is host.py's; open files are stream.py's. It
needs the extra `fsspec`, and is found by it under the name `careful`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, cast

from fsspec.asyn import AsyncFileSystem, sync_teardown
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.core import has_magic
from fsspec.utils import isfilelike

from careful.errors import CarefulError
from careful.files.file import AsyncFile, Data
from careful.files.host import AsyncHost
from careful.files.stream import Stream, new_mode
from careful.files.words import Info, bounds_of, each_of, info_of, watcher
from careful.transfer.file.local import write_file

#: What is moved at once by the connection for short questions; larger files are transfers.
SMALL_BYTES = 1 << 20
#: Files that a call has open at once: a host lets a machine have 128.
OPEN_MAX = 16


def split(url: str) -> tuple[str, str]:
    """Host and path of a URL, "" for the host of what is a path; the path begins with a slash."""
    host, path = "", url
    for protocol in CarefulFileSystem.protocol:
        if url.startswith(f"{protocol}://"):
            host, _, path = url.removeprefix(f"{protocol}://").partition("/")
    return host, "/" + path.strip("/")


class CarefulFileSystem(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files that a host exports, as fsspec wants them.

    Nothing is cached but what open files read ahead. A file that is written appears under its name
    when it is closed, complete, checked and synced. Copies and moves within the host pass through
    this machine. A symlink is a `link` in listings; whoever names one means what it leads to.

    Args:
        host: a name or an address, with :PORT if that is not ours; of a URL: its host.
        instance: see careful.files.connect(), likewise the next two.
        config: a file's name.
        timeout_s: seconds.
        sync: whether what is written is on the disk, there or here, when a call returns.
        auto_mkdir: whether missing directories above what is written are made; of copies they are.
        **more: what every fsspec file system takes (asynchronous, loop, batch_size ...).

    Raises:
        ConnectionError: at the first call: careful is not up here or there.
    """

    protocol = ("careful",)
    root_marker = "/"

    def __init__(
        self,
        host: str,
        instance: str | None = None,
        config: str | None = None,
        timeout_s: float = 5.0,
        sync: bool = True,
        auto_mkdir: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(
            host=host,
            instance=instance,
            config=config,
            timeout_s=timeout_s,
            sync=sync,
            auto_mkdir=auto_mkdir,
            **more,
        )
        if not host:
            raise ValueError("careful: no host: careful://HOST/PATH, or host=")
        self.host, self.auto_mkdir = host, auto_mkdir
        self._sync = sync
        self._fsync: Literal["file", "none"] = "file" if sync else "none"
        self._way = {"instance": instance, "config": config, "timeout_s": timeout_s}
        self._connection: AsyncHost | None = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return split(os.fspath(path))[1]

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        host = split(path)[0]
        return {"host": host} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        return f"careful://{self.host}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"careful-{self.host}"

    def _connected(self) -> AsyncHost:
        """The host, in the event loop that this runs in; its first use connects."""
        from careful import files

        if self._connection is None:
            self._connection = files.aconnect(self.host, **cast(Any, self._way))
            if not self.asynchronous:
                weakref.finalize(self, _close, self.loop, self._connection)
        return self._connection

    async def _close(self) -> None:
        """End the connection, of an asynchronous file system; the next call makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _info(self, path: str, **_: Any) -> Info:
        name = self._strip_protocol(path)
        return info_of(name, await self._connected().stat(name))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Info] | list[str]:
        one = await self._info(path)
        found = [one]
        if one["type"] == "directory":
            found = await self._below(one["name"], recursive=False)
        return found if detail else [info["name"] for info in found]

    async def _below(self, name: str, recursive: bool) -> list[Info]:
        """What is in a directory, sorted; what the host cannot read is an `other`."""
        listing = self._connected().ls(name, recursive=recursive)
        top = name.rstrip("/")
        found = [info_of(f"{top}/{one.name}", one.attr, one.target) async for one in listing]
        return sorted(found, key=lambda info: str(info["name"]))

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **more: Any
    ) -> Any:
        if maxdepth is not None:  # fsspec's own, a listing a directory
            return await super()._find(path, maxdepth, withdirs, **more)
        try:
            one = await self._info(path)
        except FileNotFoundError:
            return {} if more.get("detail") else []
        found = [one]
        if one["type"] == "directory":
            found = await self._below(one["name"], recursive=True)
            found = [one] * withdirs + [
                info for info in found if withdirs or info["type"] != "directory"
            ]
        named = {info["name"]: info for info in found}
        return named if more.get("detail") else list(named)

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, **more: Any
    ) -> int | dict[str, int]:
        found = await self._find(path, maxdepth, detail=True, **more)
        sizes = {name: int(info["size"]) for name, info in found.items()}
        return sum(sizes.values()) if total else sizes

    @asynccontextmanager
    async def _reading(self, path: str) -> AsyncIterator[AsyncFile]:
        name = self._strip_protocol(path)
        async with self._connected().opened(name) as file:
            yield file

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        async with self._reading(path) as file:
            return await file.read(*bounds_of(file, start, end))

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: int | Iterable[int | None] | None,
        ends: int | Iterable[int | None] | None,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[bytes | Exception]:
        """Each file is opened once; its ranges are on their way at once."""
        if not isinstance(paths, list):
            raise TypeError(f"paths: a list, not {type(paths).__name__}")
        if max_gap is not None:
            raise NotImplementedError("max_gap: a request of its own costs microseconds")
        bounds = zip(each_of(starts, len(paths)), each_of(ends, len(paths)), strict=True)
        wanted: dict[str, list[tuple[int, int | None, int | None]]] = {}
        for number, (path, (start, end)) in enumerate(zip(paths, bounds, strict=True)):
            wanted.setdefault(self._strip_protocol(path), []).append((number, start, end))
        found: list[bytes | Exception] = [b""] * len(paths)
        room = asyncio.Semaphore(batch_size or OPEN_MAX)

        async def of_one(path: str, ranges: list[tuple[int, int | None, int | None]]) -> None:
            numbers = [number for number, *_ in ranges]
            try:
                async with room, self._reading(path) as file:
                    bounds = [bounds_of(file, start, end) for _, start, end in ranges]
                    parts: Sequence[bytes | Exception] = await file.read_ranges(bounds)
            except OSError as error:
                parts = [error] * len(ranges)
            for number, part in zip(numbers, parts, strict=True):
                found[number] = part

        await asyncio.gather(*(of_one(path, ranges) for path, ranges in wanted.items()))
        failed = next((one for one in found if isinstance(one, Exception)), None)
        if failed is not None and on_error != "return":
            raise failed
        return found

    async def _pipe_file(self, path: str, value: Data, mode: str = "overwrite", **_: Any) -> None:
        name = self._strip_protocol(path)
        await self._make_room(name)
        await self._connected().write(name, value, replace=mode != "create", sync=self._sync)

    async def _make_room(self, name: str) -> None:
        """The directory above a file, if that is wanted."""
        if self.auto_mkdir:
            await self._makedirs(self._parent(name), exist_ok=True)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **_: Any,
    ) -> None:
        name, local = self._strip_protocol(rpath), Path(lpath)
        if local.is_dir():
            await self._makedirs(name, exist_ok=True)
            return
        nbytes = (await asyncio.to_thread(local.stat)).st_size
        callback.set_size(nbytes)
        if nbytes <= SMALL_BYTES:
            await self._pipe_file(name, await asyncio.to_thread(local.read_bytes), mode)
            callback.absolute_update(nbytes)
            return
        await self._make_room(name)
        await self._connected().put(
            local,
            name,
            replace=mode != "create",
            progress=watcher(callback),
            fsync=self._fsync,
        )

    async def _get_file(
        self, rpath: str, lpath: str | BinaryIO, callback: Callback = DEFAULT_CALLBACK, **_: Any
    ) -> None:
        info = await self._info(rpath)
        name, nbytes = info["name"], info["size"]
        if info["type"] == "directory":
            await asyncio.to_thread(os.makedirs, cast(str, lpath), exist_ok=True)
            return
        callback.set_size(nbytes)
        if isfilelike(lpath):
            await self._copy_out(name, cast(BinaryIO, lpath), callback)
        elif nbytes <= SMALL_BYTES:
            data = await self._cat_file(name)
            await asyncio.to_thread(write_file, cast(str, lpath), data, self._sync)
            callback.absolute_update(nbytes)
        else:
            await self._connected().get(
                name,
                cast(str, lpath),
                replace=True,
                progress=watcher(callback),
                fsync=self._fsync,
            )

    async def _copy_out(self, name: str, into: BinaryIO, callback: Callback) -> None:
        """Write what a file holds into another one, a piece at a time."""
        async with self._reading(name) as file:
            for at in range(0, file.nbytes, Stream.DEFAULT_BLOCK_SIZE):
                piece = await file.read(at, Stream.DEFAULT_BLOCK_SIZE)
                await asyncio.to_thread(into.write, piece)
                callback.relative_update(len(piece))

    async def _copy(
        self, path1: Any, path2: Any, recursive: bool = False, *args: Any, **more: Any
    ) -> None:
        if recursive and isinstance(path2, str):
            for top in await self._expand_path(path1):
                found = await self._find(top, detail=True)
                for name, info in found.items():
                    # An empty directory would come of it, and be all that a move leaves.
                    if info["type"] == "link" and await self._isdir(name):
                        text = "is a symlink to a directory, and cannot be copied"
                        raise CarefulError(errno.ENOTSUP, text, self.unstrip_protocol(name))
        await super()._copy(path1, path2, recursive, *args, **more)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        info = await self._info(path1)
        if info["type"] == "directory":
            await self._makedirs(path2, exist_ok=True)
            return
        # Of a tree, all are copied at once: what is above a file may come after it.
        await self._makedirs(self._parent(path2), exist_ok=True)
        if info["size"] <= SMALL_BYTES:
            await self._pipe_file(path2, await self._cat_file(path1))
        else:
            with tempfile.TemporaryFile(prefix="careful-") as file:
                await self._copy_out(info["name"], cast(BinaryIO, file), DEFAULT_CALLBACK)
                await self._put_spool(file, path2)

    async def _put_spool(self, spool: IO[bytes], path: str, replace: bool = True) -> None:
        """Put a temporary file, with a new file's mode. It has no name: nobody else can open it."""
        spool.flush()
        name, local = self._strip_protocol(path), f"/proc/self/fd/{spool.fileno()}"
        os.fchmod(spool.fileno(), new_mode())
        await self._make_room(name)
        await self._connected().put(local, name, replace=replace, fsync=self._fsync)

    async def _rm_file(self, path: str, **_: Any) -> None:
        await self._connected().remove(self._strip_protocol(path))

    async def _rmdir(self, path: str) -> None:
        await self._rm_file(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        self.rm_file(path)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **_: Any,
    ) -> None:
        if recursive:
            names = await self._all_below(path, maxdepth)
        else:
            names = await self._expand_path(path, maxdepth=maxdepth)
        room = asyncio.Semaphore(batch_size or OPEN_MAX)

        async def of_one(name: str) -> str | None:
            """What is left: a directory that may hold others of them."""
            async with room:
                if recursive and await self._isdir(name):
                    return name
                await self._rm_file(name)
            return None

        left = await asyncio.gather(*(of_one(name) for name in names))
        for name in sorted(filter(None, left), reverse=True):  # what is below comes first
            await self._rm_file(name)

    async def _all_below(self, path: str | list[str], maxdepth: int | None) -> list[str]:
        """Names and all that is below them, without what symlinks lead to."""
        names: set[str] = set()
        for one in [path] if isinstance(path, str) else path:
            tops = await self._expand_path(one, maxdepth=maxdepth)
            depth = maxdepth - 1 if maxdepth is not None and has_magic(one) else maxdepth
            for top in tops:
                if depth == 0 or await self._connected().is_link(top):
                    names.add(top)
                else:
                    names |= set(await self._find(top, depth, withdirs=True))
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return list(names)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        await self._connected().mkdir(self._strip_protocol(path), parents=create_parents)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        name = self._strip_protocol(path)
        if name == self.root_marker:  # it is what the host exports
            if not exist_ok:
                raise FileExistsError(name)
            return
        await self._connected().mkdir(name, parents=True, exist_ok=exist_ok)

    def modified(self, path: str) -> Any:
        """When a file was changed last, a datetime of UTC."""
        from datetime import UTC, datetime

        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **more: Any,
    ) -> Stream:
        if self.asynchronous:
            raise NotImplementedError("open() of an asynchronous file system: use careful.files")
        return Stream(
            self,
            path,
            mode,
            block_size or "default",
            autocommit=autocommit,
            cache_options=cache_options,
            **more,
        )


def _close(loop: asyncio.AbstractEventLoop, connection: AsyncHost) -> None:
    """End the connection of a file system that nobody has any more."""
    with contextlib.suppress(RuntimeError, CarefulError):  # the loop may have ended before
        sync_teardown(loop, connection.close)
