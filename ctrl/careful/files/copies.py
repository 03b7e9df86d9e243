"""Copies of files as fsspec defines them: to a host, from it, and within it."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
import warnings
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from fsspec.asyn import AsyncFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.implementations.local import make_path_posix, trailing_sep
from fsspec.utils import isfilelike

from careful.errors import CarefulError
from careful.files.fsspec_terms import (
    NOWHERE,
    copy_targets,
    is_existing_name,
    local_sources,
    names_to_copy,
    watcher,
)
from careful.files.stream import Stream
from careful.transfer.file.partial_file import write_file

#: Files up to this size move over the shared connection, larger ones by a transfer, bytes.
SMALL_BYTES = 1 << 20


class Copies(AsyncFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The part of CarefulFileSystem that copies files."""

    async def _put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        batch_size: int | None = None,
        maxdepth: int | None = None,
        **more: Any,
    ) -> Any:
        into_directory = isinstance(rpath, str) and (
            trailing_sep(rpath) or await self._isdir(rpath)
        )
        lpath, rpath = local_sources(lpath, rpath, into_directory, recursive, maxdepth)
        return await super()._put(lpath, rpath, recursive, callback, batch_size, maxdepth, **more)

    async def _put_file(
        self,
        lpath: str,
        rpath: str,
        callback: Callback = DEFAULT_CALLBACK,
        mode: str = "overwrite",
        **_: object,
    ) -> None:
        name, local = self._strip_protocol(rpath), Path(lpath)
        st = await asyncio.to_thread(local.stat)
        if stat.S_ISDIR(st.st_mode):
            await self._makedirs(name, exist_ok=True)
            return
        if not stat.S_ISREG(st.st_mode):  # reading a fifo may block for ever
            raise CarefulError(errno.EINVAL, "is not a regular file", lpath)
        nbytes = st.st_size
        callback.set_size(nbytes)
        if nbytes <= SMALL_BYTES:
            data = await asyncio.to_thread(local.read_bytes)
            await self._write(name, data, mode, st.st_mode & 0o777)
            callback.absolute_update(nbytes)
            return
        await self._make_parents(name)
        await self._connected().put(
            local, name, replace=mode != "create", progress=watcher(callback), fsync=self._fsync
        )

    async def _get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **more: Any,
    ) -> Any:
        if isinstance(lpath, str) and await is_existing_name(self, rpath):
            lpath = make_path_posix(lpath)
            names, _ = await names_to_copy(self, rpath, rpath, recursive, maxdepth)
            into_directory = trailing_sep(lpath) or Path(lpath).is_dir()
            top = self._strip_protocol(rpath) + "/" * trailing_sep(rpath)
            rpath, lpath = names, copy_targets(names, top, lpath, into_directory)
        more["in_tree"] = recursive
        return await super()._get(rpath, lpath, recursive, callback, maxdepth, **more)

    async def _get_file(
        self,
        rpath: str,
        lpath: str | BinaryIO,
        callback: Callback = DEFAULT_CALLBACK,
        in_tree: bool = False,
        **_: object,
    ) -> None:
        """Fetches a file; in a tree, a dangling symlink is left out and does not fail."""
        try:
            info = await self._info(rpath)
        except OSError as error:
            if not (in_tree and error.errno in NOWHERE and await self._lexists(rpath)):
                raise
            text = f"{self.unstrip_protocol(rpath)} is a symlink to nothing: it was left out"
            warnings.warn(text, stacklevel=2)
            return
        name, nbytes = info["name"], info["size"]
        if info["type"] == "directory":
            await asyncio.to_thread(os.makedirs, cast(str, lpath), exist_ok=True)
            return
        callback.set_size(nbytes)
        if isfilelike(lpath):
            await self._copy_out(name, cast(BinaryIO, lpath), callback)
        elif nbytes <= SMALL_BYTES:
            data = await self._cat_file(name)
            settings = (data, self._sync, info["mode"])
            await asyncio.to_thread(write_file, cast(str, lpath), *settings)
            callback.absolute_update(nbytes)
        else:
            await self._connected().get(
                name, cast(str, lpath), replace=True, progress=watcher(callback), fsync=self._fsync
            )

    async def _copy_out(self, name: str, target: BinaryIO, callback: Callback) -> None:
        async with self._reading(name) as file:
            for at in range(0, file.nbytes, Stream.DEFAULT_BLOCK_SIZE):
                data = await file.read_at(at, Stream.DEFAULT_BLOCK_SIZE)
                await asyncio.to_thread(target.write, data)
                callback.relative_update(len(data))

    async def _copy(
        self, path1: Any, path2: Any, recursive: bool = False, *args: Any, **more: Any
    ) -> None:
        if recursive and isinstance(path2, str):
            for directory in await self._expand_path(path1):
                entries = await self._find(directory, detail=True)
                for name, info in entries.items():
                    # The copy would be an empty directory, and a move would lose the contents.
                    if info["type"] == "link" and await self._isdir(name):
                        text = "is a symlink to a directory, and cannot be copied"
                        raise CarefulError(errno.ENOTSUP, text, self.unstrip_protocol(name))
        if isinstance(path2, str) and await is_existing_name(self, path1):
            depth = more.get("maxdepth")
            names, into_directory = await names_to_copy(self, path1, path2, recursive, depth)
            top = self._strip_protocol(path1) + "/" * trailing_sep(path1)
            path1, path2 = (
                names,
                copy_targets(names, top, self._strip_protocol(path2), into_directory),
            )
        await super()._copy(path1, path2, recursive, *args, **more)

    async def _cp_file(self, path1: str, path2: str, **_: object) -> None:
        info = await self._info(path1)
        if info["type"] == "directory":
            await self._makedirs(path2, exist_ok=True)
            return
        # fsspec copies a tree's names at once, so a directory may come after its files.
        await self._makedirs(self._parent(path2), exist_ok=True)
        if info["size"] <= SMALL_BYTES:
            await self._write(path2, await self._cat_file(path1), permissions=info["mode"])
        else:
            with tempfile.TemporaryFile(prefix="careful-") as file:
                await self._copy_out(info["name"], cast(BinaryIO, file), DEFAULT_CALLBACK)
                await self._put_spool(file, path2, True, info["mode"])

    async def _put_spool(
        self, spool: IO[bytes], path: str, replace: bool = True, mode: int = 0o666
    ) -> None:
        """Puts a temporary file, which has no name for other programs to open; `mode` applies to a
        new file, before the umask.
        """
        spool.flush()
        name, local = self._strip_protocol(path), f"/proc/self/fd/{spool.fileno()}"
        os.fchmod(spool.fileno(), mode & 0o777)
        await self._make_parents(name)
        await self._connected().put(local, name, replace=replace, fsync=self._fsync)
