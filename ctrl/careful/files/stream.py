"""An open file of a CarefulFileSystem: Python's file object, with fsspec's block caches."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import IO, Any

from fsspec.asyn import sync, sync_teardown
from fsspec.spec import AbstractBufferedFile

from careful.files.file import AsyncFile


class Stream(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """One file, mode "rb", "wb", "xb" or "ab".

    Reads see the file that was opened, even if another program replaces it. Data written with "wb"
    or "xb" waits until close() or commit(): in memory, or in a temporary file from the second block
    on. "ab" makes a missing file and appends each block at the end that the file then has.
    """

    DEFAULT_BLOCK_SIZE = 1 << 20

    def __init__(self, fs: Any, path: str, mode: str, *args: Any, **more: Any) -> None:
        self._file: AsyncFile | None = None
        self._spool: IO[bytes] | None = None
        if mode == "xb" and fs.exists(path):
            raise FileExistsError(path)
        if mode == "rb":
            self._file = self._opened(fs, path)
            more["size"] = self._file.nbytes
        if mode == "ab":
            sync(fs.loop, fs._append, path, b"")
            more["size"] = fs.info(path)["size"]
        super().__init__(fs, path, mode, *args, **more)
        if mode == "ab":
            self.loc = more["size"]

    @staticmethod
    def _opened(fs: Any, path: str) -> AsyncFile:
        async def opened() -> AsyncFile:
            file: AsyncFile = fs._connected().open(path)
            return await file.opened()

        file: AsyncFile = sync(fs.loop, opened)
        return file

    def _fetch_range(self, start: int, end: int) -> bytes:
        assert self._file is not None
        return sync(self.fs.loop, self._file.read_at, start, end - start)  # type: ignore[no-any-return]

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        if self.mode == "ab":
            if data:
                sync(self.fs.loop, self.fs._append, self.path, data)
            return True
        if final and self.autocommit and self._spool is None:
            self.fs.pipe_file(self.path, data, "create" if self.mode == "xb" else "overwrite")
            return True
        if self._spool is None:
            self._spool = tempfile.TemporaryFile(prefix="careful-")  # noqa: SIM115
        self._spool.write(data)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        if self._spool is None:
            return
        try:
            arguments = (self._spool, self.path, self.mode != "xb")
            sync(self.fs.loop, self.fs._put_spool, *arguments)
        finally:
            self.discard()

    def discard(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None and self.mode in ("wb", "xb"):  # the file is incomplete
            self.forced = True  # fsspec then writes nothing more
            self.discard()
        self.close()

    def close(self) -> None:
        """Closes the file; written data is at the host when this returns. At the end of the
        program it is too late to write, so an unclosed file is thrown away.
        """
        if self.closed:
            return
        try:
            if sys.is_finalizing():
                self._closed = True
            else:
                super().close()
        finally:
            file, self._file = self._file, None
            if file is not None and os.getpid() == self.fs._pid:
                sync_teardown(self.fs.loop, file.close)
            if self.autocommit:
                self.discard()
