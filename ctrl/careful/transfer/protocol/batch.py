"""Batches of items (block.h): many small files, or attributes of many names, at once.

Owns the records, and runs them in a local or a peer's directory. Both ends use the same records:
the answer to READ at one end makes the files at the other.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from careful._abi import Buffer, CData, ffi, layout, lib, pack, sizeof, unpack
from careful.errors import CarefulError, about, check, shown
from careful.transfer.folder import current_umask, open_folder
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr, attr_of
from careful.transfer.tasks import in_thread

#: The most contents, bytes, and the most files of one batch.
BYTES = 2 << 20
COUNT = 1024
#: A file up to this size is small: naming it costs more than moving it, bytes.
SMALL_BYTES = 64 << 10
#: The largest answer, bytes.
_ANSWER_MAX = 16 << 20
#: How often to try a batch while other programs have all handles: about half a minute.
_ATTEMPTS = 300
_T = TypeVar("_T")
_HEAD = sizeof("careful_block_item")
_ATTR = sizeof("careful_block_attr")
_TAIL = struct.Struct(">HHIIIIIQQ")
assert _ATTR + _TAIL.size == _HEAD
_TAIL_FIELDS = "op pad status name_bytes text_bytes xattrs_bytes pad2 data_bytes digest"
assert " ".join(field.name for field in layout("careful_block_item")[-9:]) == _TAIL_FIELDS


class Item(NamedTuple):
    """One record of a batch.

    Attributes:
        op: CAREFUL_ITEM_*.
        name: relative to the batch's directory.
        attr: attributes to set, or as read, packed; b"": zeros.
        text: target of a symlink, or first name of a link.
        xattrs: careful_block_xattr records.
        data: contents of a file.
        digest: XXH3 of data.
        status: in an answer, 0 or a positive errno.
    """

    op: int
    name: bytes
    attr: bytes = b""
    text: bytes = b""
    xattrs: bytes = b""
    data: bytes | memoryview = b""
    digest: int = 0
    status: int = 0

    def packed(self) -> bytes:
        counts = len(self.name), len(self.text), len(self.xattrs)
        tail = _TAIL.pack(self.op, 0, self.status, *counts, 0, len(self.data), self.digest)
        head = self.attr or bytes(_ATTR)
        whole = b"".join((head, tail, self.name, self.text, self.xattrs, self.data))
        return whole + bytes(-len(whole) % 8)

    @property
    def attributes(self) -> Attr:
        return attr_of(unpack("careful_block_attr", self.attr))


def packed_attr(attr: Attr) -> bytes:
    """Packs attributes for an item."""
    fields = {name: value & (1 << 64) - 1 for name, value in attr._asdict().items()}
    return pack("careful_block_attr", **fields)


def parse(answer: bytes | memoryview) -> Iterator[Item]:
    """Yields the items of an answer. Raises CarefulError: the answer is malformed."""
    view, at, end = memoryview(answer), 0, len(answer)
    while at < end:
        if end - at < _HEAD:
            raise CarefulError(errno.EPROTO, "the answer ends in the middle of an item")
        op, _, status, names, texts, xattrs, _, data, digest = _TAIL.unpack_from(view, at + _ATTR)
        attr = bytes(view[at : at + _ATTR])
        name_at = at + _HEAD
        text_at = name_at + names
        xattrs_at = text_at + texts
        data_at = xattrs_at + xattrs
        last = data_at + data
        if last > end:
            raise CarefulError(errno.EPROTO, "the answer ends in the middle of an item")
        yield Item(
            op,
            bytes(view[name_at:text_at]),
            attr,
            bytes(view[text_at:xattrs_at]),
            bytes(view[xattrs_at:data_at]),
            view[data_at:last],
            digest,
            status,
        )
        at = (last + 7) & ~7


def answers_to(tree: Tree, count: int, answer: bytes | memoryview) -> list[Item]:
    """Returns the answers to `count` items. Raises CarefulError: malformed, or another count."""
    answers = list(parse(answer))
    if len(answers) != count:
        raise CarefulError(errno.EPROTO, "the answer to a batch is malformed", tree.name("."))
    return answers


async def run_items(tree: Tree, items: Sequence[Item], flags: int = 0) -> list[Item]:
    """Runs items in a directory; returns their answers in order."""
    return answers_to(tree, len(items), await tree.run(joined(items), flags))


async def when_free(work: Callable[[], Awaitable[_T]]) -> _T:
    """Awaits work(), again while other local programs have all of our handles."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await work()
        except CarefulError as error:
            if error.errno != errno.EMFILE:
                raise
        await asyncio.sleep(0.01 + os.urandom(1)[0] / 1300)
    return await work()


async def run_stored(
    remote: BlockClient, memory: int, nbytes: int, flags: int, file_bytes_max: int, name: str
) -> tuple[int, int, int]:
    """Runs items in a peer's memory; returns the answer's handle and bytes, and how many failed."""
    fields = {"bytes": nbytes, "file_bytes_max": file_bytes_max, "umask": current_umask()}
    payload = pack("careful_block_batch", **fields)
    reply = await remote.request(lib.CAREFUL_BLOCK_BATCH, (memory, flags), payload)
    key, high, low, failed = reply.check(name).args
    return key, high << 32 | low, failed


class LocalTree:
    """A local directory in which batches run; follows no symlink below `root`. None: no root."""

    def __init__(self, base: str, root: str | None = None) -> None:
        self.base, self.root = base, root
        self._prefix = shown(os.path.join(os.path.normpath(base or "."), ""))
        self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def name(self, path: str) -> str:
        """Returns a path in the directory as messages show it."""
        return (self._prefix + shown(path)).removeprefix("./").removesuffix("/.")

    async def run(self, items: bytes, flags: int) -> bytes:
        """Runs items; returns their answers."""
        return await in_thread(partial(self._run, items, flags))

    def _run(self, items: bytes, flags: int) -> bytes:
        answer = self._batch(ffi.from_buffer(items), len(items), self._settings(flags))
        try:
            return bytes(ffi.buffer(answer.items, answer.bytes))
        finally:
            lib.careful_batch_release(answer)

    def make(self, items: Buffer, nbytes: int, flags: int) -> bytes:
        """Runs items in memory; returns their answers, or b"" if all succeeded."""
        answer = self._batch(items, nbytes, self._settings(flags))
        try:
            return bytes(ffi.buffer(answer.items, answer.bytes)) if answer.failed else b""
        finally:
            lib.careful_batch_release(answer)

    def read(self, items: bytes, flags: int, file_bytes_max: int, to: Buffer, to_bytes: int) -> int:
        """Runs READ items; writes the answer to memory and returns its bytes.

        file_bytes_max: of one file. to, to_bytes: the memory. Raises CarefulError: EOVERFLOW: the
        answer does not fit.
        """
        settings = self._settings(flags)
        settings.file_bytes_max, settings.memory, settings.answer_bytes_max = (
            file_bytes_max,
            to,
            to_bytes,
        )
        return int(self._batch(ffi.from_buffer(items), len(items), settings).bytes)

    def _settings(self, flags: int) -> CData:
        settings = ffi.new("struct careful_batch_how *")
        settings.flags, settings.umask, settings.writable = flags, current_umask(), 1
        settings.file_bytes_max, settings.answer_bytes_max = SMALL_BYTES, _ANSWER_MAX
        settings.no_symlinks = self.root is not None
        return settings

    def _batch(self, items: Buffer, nbytes: int, settings: CData) -> CData:
        with about(shown(self.base)):
            if self._fd < 0:
                self._fd = open_folder(self.base, self.root)
        answer = ffi.new("struct careful_batch_answer *")
        check(lib.careful_batch(self._fd, items, nbytes, settings, answer), shown(self.base))
        return answer


class RemoteTree:
    """A directory of a peer; its methods are those of LocalTree."""

    def __init__(self, remote: BlockClient, base: str) -> None:
        self.remote = remote
        self.base = base
        self._prefix = shown(os.path.join(os.path.normpath(base or "."), "")).removeprefix("./")

    def close(self) -> None:
        """Does nothing: no handle is open."""

    def name(self, path: str) -> str:
        return self.remote.name((self._prefix + shown(path)).removesuffix("/."))

    async def run(self, items: bytes, flags: int) -> bytes:
        return await when_free(partial(self._run, items, flags))

    async def _run(self, items: bytes, flags: int) -> bytes:
        remote, name = self.remote, self.name(".")
        scratch = await remote.scratch(self.base, len(items))
        try:
            await remote.write(scratch, 0, items, name)
            settings = len(items), flags, SMALL_BYTES, name
            key, size, _ = await run_stored(remote, scratch, *settings)
        finally:
            await remote.request(lib.CAREFUL_BLOCK_CLOSE, (scratch,))
        try:
            if size > _ANSWER_MAX:
                raise CarefulError(errno.E2BIG, "the answer is too large", name)
            return await remote.read(key, 0, size, name)
        finally:
            await remote.request(lib.CAREFUL_BLOCK_CLOSE, (key,))


Tree = LocalTree | RemoteTree


def joined(items: Sequence[Item]) -> bytes:
    """Packs items into a batch."""
    return b"".join(item.packed() for item in items)
