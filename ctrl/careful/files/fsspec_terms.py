"""Converts file attributes, ranges and progress to fsspec's terms."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from typing import Any

from fsspec.callbacks import Callback

from careful.files.file import AsyncFile
from careful.files.options import Progress
from careful.transfer.protocol.entries import Attr

Info = dict[str, Any]

_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def info_of(name: str, attr: Attr, target: str = "") -> Info:
    """Returns fsspec's description of a file."""
    info = {
        "name": name,
        "size": attr.bytes,
        "type": _TYPES.get(stat.S_IFMT(attr.mode), "other"),
        "mode": attr.mode,
        "uid": attr.uid,
        "gid": attr.gid,
        "mtime": attr.mtime_ns / 1e9,
        "ino": attr.inode,
        "nlink": attr.nlink,
    }
    return info | ({"destination": target} if target else {})


def bounds_of(file: AsyncFile, start: int | None, end: int | None) -> tuple[int, int]:
    """Returns offset and size of a range; negative bounds count from the file's end."""
    first, past, _ = slice(start, end).indices(file.nbytes)
    return first, max(0, past - first)


def bounds_per_range(bounds: int | Iterable[int | None] | None, count: int) -> Sequence[int | None]:
    """Returns one bound for each of `count` ranges."""
    if bounds is None or isinstance(bounds, int):
        return [bounds] * count
    listed = list(bounds)
    if len(listed) != count:
        raise ValueError(f"{len(listed)} bounds do not fit {count} ranges")
    return listed


def watcher(callback: Callback) -> Any:
    """Returns a progress function that updates a fsspec callback."""

    def tell(progress: Progress) -> None:
        callback.absolute_update(progress.bytes_done)

    return tell
