"""A host's files as an fsspec file system: `careful://HOST/PATH` for pandas, Dask, zarr and others.

Owns the meaning of fsspec's calls. Needs the extra `fsspec`; fsspec finds the class as `careful`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import weakref
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Literal, cast

from fsspec.asyn import sync, sync_teardown
from fsspec.core import has_magic

from careful.errors import CarefulError
from careful.files.copies import Copies
from careful.files.file import AsyncFile, Data
from careful.files.fsspec_terms import (
    NOWHERE,
    Info,
    bounds_of,
    bounds_per_range,
    called_by_mapping,
    info_of,
    is_existing_name,
    move,
)
from careful.files.host import AsyncHost
from careful.files.stream import Stream

#: Files that one call has open at once; a host allows one machine 128.
OPEN_MAX = 16


def split(url: str) -> tuple[str, str]:
    """Returns host ("" for a bare path) and path of a URL; the path begins with a slash."""
    host, path = "", url
    for protocol in CarefulFileSystem.protocol:
        if url.startswith(f"{protocol}://"):
            host, _, path = url.removeprefix(f"{protocol}://").partition("/")
    return host, "/" + path.strip("/")


class CarefulFileSystem(Copies):
    """The files that a host exports, as an fsspec file system.

    Nothing is cached but the read-ahead of open files. A written file appears under its name when
    it is closed: complete, checked and synced. A replaced file keeps its mode; a new file gets the
    source's mode minus the umask. Copies within the host pass through this machine; moves are
    renames at the host. A name that exists is never a pattern. Listings show a symlink as a `link`;
    a path that names a symlink means its target. Raises ConnectionError: at the first call, if
    careful is not up here or at the host.

    Args:
        host: a name or an address, with :PORT if it uses another port; or a URL's host.
        instance, config: see careful.files.connect(); config is a file's name.
        timeout_s: seconds.
        sync: whether written files, here or at the host, are durable when a call returns.
        auto_mkdir: whether to make missing parent directories; copies always make them.
        **more: arguments of every fsspec file system (asynchronous, loop, batch_size ...).
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
        super().__init__(**more)
        if not host:
            raise ValueError("the host is missing: give careful://HOST/PATH, or host=")
        self.host, self.auto_mkdir = host, auto_mkdir
        self._sync = sync
        self._fsync: Literal["file", "none"] = "file" if sync else "none"
        self._settings = {"instance": instance, "config": config, "timeout_s": timeout_s}
        self._connections: dict[asyncio.AbstractEventLoop, AsyncHost] = {}

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
        return f"careful://{self.host}{self._strip_protocol(name)}"

    @property
    def fsid(self) -> str:
        return f"careful-{self.host}"

    def _connected(self) -> AsyncHost:
        """Returns the host for the running event loop; fsspec may use several loops in turn."""
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            for other in [one for one in self._connections if one.is_closed()]:
                self._connections.pop(other)._connections.close_descriptors()
            self._connections[loop] = connection = self._connect()
            if not self.asynchronous:
                weakref.finalize(self, _close, self.loop, connection)
        return self._connections[loop]

    def _connect(self) -> AsyncHost:
        from careful import files

        return files.aconnect(self.host, **cast(Any, self._settings))

    async def _close(self) -> None:
        """Closes an asynchronous file system's connection; the next call makes another."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.close()

    async def _info(self, path: str, **_: object) -> Info:
        name = self._strip_protocol(path)
        return info_of(name, await self._connected().stat(name))

    async def _exists(self, path: str, **_: object) -> bool:
        try:
            await self._info(path)
        except OSError as error:
            if error.errno in NOWHERE:
                return False
            raise
        return True

    async def _lexists(self, path: str) -> bool:
        name = self._strip_protocol(path)
        try:
            return await self._exists(name) or await self._connected().is_link(name)
        except OSError as error:
            if error.errno in NOWHERE:
                return False
            raise

    def lexists(self, path: str, **_: object) -> bool:
        """Reports whether a name exists, even as a dangling symlink."""
        return bool(sync(self.loop, self._lexists, path))

    async def _expand_path(
        self,
        path: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        assume_literal: bool = False,
    ) -> list[str]:
        """Expands as fsspec does, except that a name that exists is no pattern."""
        paths = [path] if isinstance(path, str) else path
        names = [self._strip_protocol(one) for one in paths]
        literal = (
            [] if assume_literal else [one for one in names if await is_existing_name(self, one)]
        )
        rest = [one for one in names if one not in literal]
        expanded: set[str] = set()
        if literal:
            expanded = set(await super()._expand_path(literal, recursive, maxdepth, True))
        try:
            expanded |= set(await super()._expand_path(rest, recursive, maxdepth, assume_literal))
        except FileNotFoundError:
            if not expanded:
                raise
        return sorted(expanded)

    async def _ls(self, path: str, detail: bool = True, **_: object) -> list[Info] | list[str]:
        info = await self._info(path)
        infos = [info]
        if info["type"] == "directory":
            infos = await self._below(info["name"], recursive=False)
        return infos if detail else [one["name"] for one in infos]

    async def _below(self, name: str, recursive: bool) -> list[Info]:
        """Returns a directory's entries, sorted; entries that the host cannot read are `other`."""
        listing = self._connected().ls(name, recursive=recursive)
        top = name.rstrip("/")
        infos = [info_of(f"{top}/{one.name}", one.attr, one.target) async for one in listing]
        return sorted(infos, key=lambda one: str(one["name"]))

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, **more: Any
    ) -> Any:
        if maxdepth is not None:  # fsspec lists each directory
            return await super()._find(path, maxdepth, withdirs, **more)
        try:
            info = await self._info(path)
        except OSError as error:
            if error.errno not in NOWHERE:
                raise
            return {} if more.get("detail") else []
        infos = [info]
        if info["type"] == "directory":
            infos = await self._below(info["name"], recursive=True)
            infos = [one for one in infos if withdirs or one["type"] != "directory"]
            infos = [info] * withdirs + infos
        by_name = {one["name"]: one for one in infos}
        return by_name if more.get("detail") else list(by_name)

    async def _du(
        self, path: str, total: bool = True, maxdepth: int | None = None, **more: Any
    ) -> int | dict[str, int]:
        infos = await self._find(path, maxdepth, detail=True, **more)
        sizes = {name: int(one["size"]) for name, one in infos.items()}
        return sum(sizes.values()) if total else sizes

    @asynccontextmanager
    async def _reading(self, path: str) -> AsyncIterator[AsyncFile]:
        name = self._strip_protocol(path)
        async with self._connected().opened(name) as file:
            yield file

    def cat(
        self, path: str | list[str], recursive: bool = False, on_error: str = "raise", **more: Any
    ) -> Any:
        """Returns contents of files, by name; a name that does not exist is a pattern."""
        if not called_by_mapping():
            return sync(self.loop, self._cat, path, recursive, on_error, **more)
        if isinstance(path, str):
            return self.cat_file(path)
        return dict(zip(path, self.cat_ranges(path, None, None, on_error=on_error), strict=True))

    async def _cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: object
    ) -> bytes:
        async with self._reading(path) as file:
            return await file.read_at(*bounds_of(file, start, end))

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: int | Iterable[int | None] | None,
        ends: int | Iterable[int | None] | None,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: object,
    ) -> list[bytes | Exception]:
        """Opens each file once and reads its ranges at once."""
        if not isinstance(paths, list):
            raise TypeError(f"paths must be a list, not {type(paths).__name__}")
        if max_gap is not None:
            raise NotImplementedError("max_gap is not supported; leave it out: requests are cheap")
        bounds = zip(
            bounds_per_range(starts, len(paths)), bounds_per_range(ends, len(paths)), strict=True
        )
        ranges_of: dict[str, list[tuple[int, int | None, int | None]]] = {}
        for number, (path, (start, end)) in enumerate(zip(paths, bounds, strict=True)):
            ranges_of.setdefault(self._strip_protocol(path), []).append((number, start, end))
        results: list[bytes | Exception] = [b""] * len(paths)
        slots = asyncio.Semaphore(batch_size or OPEN_MAX)

        async def read_file(path: str, ranges: list[tuple[int, int | None, int | None]]) -> None:
            numbers = [number for number, *_ in ranges]
            try:
                async with slots, self._reading(path) as file:
                    bounds = [bounds_of(file, start, end) for _, start, end in ranges]
                    parts: Sequence[bytes | Exception] = await file.read_ranges(bounds)
            except OSError as error:
                parts = [error] * len(ranges)
            for number, part in zip(numbers, parts, strict=True):
                results[number] = part

        await asyncio.gather(*(read_file(path, ranges) for path, ranges in ranges_of.items()))
        failed = next((one for one in results if isinstance(one, Exception)), None)
        if failed is not None and on_error != "return":
            raise failed
        return results

    async def _pipe_file(
        self, path: str, value: Data, mode: str = "overwrite", **_: object
    ) -> None:
        await self._write(path, value, mode)

    async def _write(
        self, path: str, value: Data, mode: str = "overwrite", permissions: int = 0o666
    ) -> None:
        name = self._strip_protocol(path)
        await self._make_parents(name)
        await self._connected().write(
            name, value, replace=mode != "create", sync=self._sync, mode=permissions
        )

    async def _append(self, path: str, value: Data) -> None:
        name = self._strip_protocol(path)
        await self._make_parents(name)
        await self._connected().append(name, value, sync=self._sync)

    async def _make_parents(self, name: str) -> None:
        if self.auto_mkdir:
            await self._makedirs(self._parent(name), exist_ok=True)

    async def _mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None
    ) -> None:
        if maxdepth is not None:
            raise NotImplementedError("maxdepth is not supported: a move renames the whole tree")
        await move(self, path1, path2)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = False,
        maxdepth: int | None = None,
        **_: object,
    ) -> None:
        """Renames files and directories at the host, each in one step.

        A move to the same name does nothing. Only files can move to another file system or export
        of the host; their contents pass through this machine.
        """
        sync(self.loop, self._mv, path1, path2, recursive, maxdepth)

    async def _rename(self, old: str, new: str) -> None:
        await self._connected().rename(old, new, replace=True, sync=self._sync)

    async def _rm_file(self, path: str, **_: object) -> None:
        await self._connected().remove(self._strip_protocol(path))

    async def _rmdir(self, path: str) -> None:
        await self._rm_file(path)

    def rmdir(self, path: str) -> None:
        self.rm_file(path)

    def rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        maxdepth: int | None = None,
        **more: Any,
    ) -> None:
        """Removes files, with `recursive` directories; a name that does not exist is a pattern."""
        literal = called_by_mapping()
        sync(self.loop, self._rm, path, recursive, maxdepth=maxdepth, literal=literal, **more)

    async def _rm(
        self,
        path: str | list[str],
        recursive: bool = False,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        literal: bool = True,
        **_: object,
    ) -> None:
        """Removes names. zarr removes names that may be missing, so no name is a pattern."""
        if recursive:
            names = await self._names_below(path, maxdepth, literal)
        else:
            names = await self._expand_path(path, maxdepth=maxdepth, assume_literal=literal)
        slots = asyncio.Semaphore(batch_size or OPEN_MAX)

        async def remove_file(name: str) -> str | None:
            """Removes a name; returns it if it is a directory, which may still hold others."""
            async with slots:
                if recursive and await self._isdir(name):
                    return name
                await self._rm_file(name)
            return None

        directories = await asyncio.gather(*(remove_file(name) for name in names))
        for name in sorted(filter(None, directories), reverse=True):  # children first
            await self._rm_file(name)

    async def _names_below(
        self, path: str | list[str], maxdepth: int | None, literal: bool
    ) -> list[str]:
        names: set[str] = set()
        for pattern in [path] if isinstance(path, str) else path:
            tops = await self._expand_path(pattern, maxdepth=maxdepth, assume_literal=literal)
            is_pattern = (
                not literal and has_magic(pattern) and not await is_existing_name(self, pattern)
            )
            depth = maxdepth
            if depth is not None and is_pattern:
                depth -= 1  # the pattern matched one level
            for top in tops:
                if depth == 0 or await self._connected().is_link(top):
                    names.add(top)
                else:
                    names |= set(await self._find(top, depth, withdirs=True))
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return list(names)

    async def _mkdir(self, path: str, create_parents: bool = True, **_: object) -> None:
        await self._connected().mkdir(self._strip_protocol(path), parents=create_parents)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        name = self._strip_protocol(path)
        if name == self.root_marker:  # the export itself
            if not exist_ok:
                raise FileExistsError(name)
            return
        await self._connected().mkdir(name, parents=True, exist_ok=exist_ok)

    def modified(self, path: str) -> Any:
        """Returns the time of a file's last change, a datetime in UTC."""
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, object] | None = None,
        **more: Any,
    ) -> Stream:
        if self.asynchronous:
            raise NotImplementedError(
                "an asynchronous file system has no open(): use careful.files"
            )
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
    with contextlib.suppress(RuntimeError, CarefulError):  # the loop may have ended
        sync_teardown(loop, connection.close)
