"""Converts names, attributes, ranges and progress to fsspec's terms; a name that exists is never a
pattern.
"""

from __future__ import annotations

import errno
import inspect
import os
import posixpath
import stat
from collections.abc import Iterable, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from fsspec.callbacks import Callback
from fsspec.core import has_magic
from fsspec.implementations.local import LocalFileSystem, make_path_posix, trailing_sep

from careful.errors import CarefulError
from careful.files.file import AsyncFile
from careful.files.options import Progress
from careful.transfer.protocol.entries import Attr

Info = dict[str, Any]

_TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
#: Errors for names that cannot exist; exists(), find() and others treat them as absent.
NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


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


def called_by_mapping() -> bool:
    """Reports whether fsspec's mapping is the caller: its keys are names, never patterns.

    fsspec.get_mapper() calls rm() and cat() like any program; only the stack shows the difference.
    """
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__") != "fsspec.mapping":
        frame = frame.f_back
    return frame is not None


async def is_existing_name(fs: Any, path: Any) -> bool:
    """Reports whether a path looks like a pattern but exists."""
    return isinstance(path, str) and has_magic(path) and await fs._lexists(path)


def copy_targets(names: Sequence[str], top: str, target: str, into_directory: bool) -> list[str]:
    """Returns the targets of copies.

    Args:
        names: the sources: top, and the names below it.
        top: the path that the user gave; with a trailing slash, its contents.
        target: where the copies go.
        into_directory: whether target is an existing directory.
    """
    bare = top.rstrip("/")
    base = posixpath.dirname(bare).rstrip("/") if into_directory and not trailing_sep(top) else bare
    return [target.rstrip("/") + name[len(base) :] for name in names]


async def names_to_copy(
    fs: Any, source: str, target: str, recursive: bool, maxdepth: int | None
) -> tuple[list[str], bool]:
    """Returns the names to copy, and whether they go into `target` as a directory."""
    names = await fs._expand_path([source], recursive, maxdepth)
    if not recursive or maxdepth is not None:
        names = [name for name in names if not await fs._isdir(name)]
    return names, trailing_sep(target) or await fs._isdir(target)


def local_sources(
    source: Any, target: Any, is_dir: bool, recursive: bool, maxdepth: int | None
) -> tuple[Any, Any]:
    """Returns arguments for fs.put() in which no existing local name acts as a pattern.

    source: one name, or several. is_dir: whether target is an existing directory.
    """
    if isinstance(source, list):
        if isinstance(target, list):
            return source, target
        return [escape(one) if os.path.lexists(one) else one for one in source], target
    path = make_path_posix(source)
    if not (has_magic(path) and os.path.lexists(path)):
        return source, target
    names, local = [path.rstrip("/")], LocalFileSystem()
    if Path(path).is_dir():
        names = sorted({*names, *local.find(path, maxdepth, withdirs=True)}) if recursive else []
    return names, copy_targets(names, path, target, is_dir)


async def move(fs: Any, source: Any, target: Any) -> None:
    """Renames names at the host, as CarefulFileSystem.mv() does."""
    if isinstance(source, list) and isinstance(target, list):
        pairs = list(zip(source, target, strict=True))
    else:
        is_many = not isinstance(source, str) or (
            has_magic(source) and not await is_existing_name(fs, source)
        )
        into_directory = is_many or trailing_sep(target) or await fs._isdir(target)
        names = await fs._expand_path(source)
        folder = fs._strip_protocol(target)
        pairs = [
            (old, posixpath.join(folder, posixpath.basename(old)) if into_directory else folder)
            for old in names
        ]
    stripped = [(fs._strip_protocol(old), fs._strip_protocol(new)) for old, new in pairs]
    if len({new for _, new in stripped}) < len(stripped):
        raise ValueError("two of the names would move to the same name")
    for old, new in stripped:
        await _move_one(fs, old, new)


async def _move_one(fs: Any, old: str, new: str) -> None:
    if new.startswith(f"{old}/"):
        text = "a directory cannot be moved into itself"
        raise CarefulError(errno.EINVAL, text, fs.unstrip_protocol(old))
    try:
        await fs._rename(old, new)
    except FileNotFoundError:
        if not await fs._lexists(old):
            raise
        await fs._makedirs(fs._parent(new), exist_ok=True)
        await fs._rename(old, new)
    except OSError as error:
        is_file = await fs._isfile(old) and not await fs._connected().is_link(old)
        if error.errno != errno.EXDEV or not is_file:
            raise
        await _move_contents(fs, old, new)


async def _move_contents(fs: Any, old: str, new: str) -> None:
    """Moves a file to another file system of the host, unless both names are the same file."""
    old_attr = await fs._connected().stat(old)
    if await fs._exists(new):
        new_attr = await fs._connected().stat(new)
        if (old_attr.device, old_attr.inode) == (new_attr.device, new_attr.inode):
            return
    await fs._cp_file(old, new)
    await fs._rm_file(old)
