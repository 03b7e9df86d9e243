"""Makes, renames and removes names at a host, and appends to files.

A rename or an append runs in the export, any other item in the directory above its name.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from careful._abi import lib
from careful.errors import CarefulError, shown
from careful.transfer.file.partial_file import digest_of
from careful.transfer.folder import current_umask, exists_error
from careful.transfer.options import Options
from careful.transfer.protocol.batch import BYTES, Item, RemoteTree, packed_attr, run_items
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING
from careful.transfer.tree.direction import RemoteEnd, make_path

Data = bytes | bytearray | memoryview

_RENAME_ERRORS = {
    errno.EINVAL: "a directory cannot be moved into itself",
    errno.EXDEV: "cannot be renamed to another file system or export",
}


async def mkdir(remote: BlockClient, path: str, mode: int, parents: bool, exist_ok: bool) -> None:
    """Makes a directory, as AsyncHost.mkdir() does."""
    name = remote.name(shown(path))
    if parents:
        await make_path(RemoteEnd(remote), posixpath.dirname(path), Options(make_path=True))
    answer = None
    if await _is_export(remote, path):
        await remote.stat(path)
    else:
        attr = NOTHING._replace(mode=stat.S_IFDIR | mode & 0o777 & ~current_umask())
        answer = await _run(remote, lib.CAREFUL_ITEM_DIRECTORY, path, packed_attr(attr))
        if answer.status == errno.ENOTDIR:
            raise CarefulError(errno.EEXIST, "exists and is not a directory", name)
        if answer.status:
            raise CarefulError(answer.status, "", name)
    if (answer is None or answer.op != lib.CAREFUL_ITEM_DIRECTORY) and not exist_ok:
        raise CarefulError(errno.EEXIST, "", name)


async def remove(remote: BlockClient, path: str) -> None:
    """Removes a file, a symlink or an empty directory, as AsyncHost.remove() does."""
    name = remote.name(shown(path))
    if await _is_export(remote, path):
        await remote.stat(path)
        raise CarefulError(errno.EBUSY, "is the exported directory itself", name)
    # REMOVE does not report a missing name; READ, unlike stat(), finds a dangling symlink.
    answer = await _run(remote, lib.CAREFUL_ITEM_READ, path)
    if answer.status == errno.ENOENT:
        raise CarefulError(errno.ENOENT, "", name)
    answer = await _run(remote, lib.CAREFUL_ITEM_REMOVE, path)
    if answer.status:
        text = "a transfer is using it" if answer.status == errno.EBUSY else ""
        raise CarefulError(answer.status, text, name)


async def rename(remote: BlockClient, source: str, target: str, replace: bool, sync: bool) -> None:
    """Renames a path, as AsyncHost.rename() does."""
    item = Item(lib.CAREFUL_ITEM_RENAME, os.fsencode(target), text=os.fsencode(source))
    flags = (lib.CAREFUL_BATCH_REPLACE if replace else 0) | _sync_flag(sync)
    error = (await _in_export(remote, item, flags)).status
    if error == errno.EEXIST:
        raise exists_error(remote.name(shown(target)))
    if error in _RENAME_ERRORS:
        raise CarefulError(error, _RENAME_ERRORS[error], remote.name(shown(source)))
    if error:
        raise CarefulError(error, "", remote.name(shown(source)))


async def append(remote: BlockClient, path: str, data: Data, mode: int, sync: bool) -> None:
    """Appends to a file, as AsyncHost.append() does."""
    attr = packed_attr(NOTHING._replace(mode=stat.S_IFREG | mode))
    with memoryview(data) as whole, whole.cast("B") as view:
        for at in range(0, len(view) or 1, BYTES):
            chunk = bytes(view[at : at + BYTES])
            item = Item(
                lib.CAREFUL_ITEM_APPEND,
                os.fsencode(path),
                attr,
                data=chunk,
                digest=digest_of(chunk),
            )
            error = (await _in_export(remote, item, _sync_flag(sync))).status
            if error:
                raise CarefulError(error, "", remote.name(shown(path)))


def _sync_flag(sync: bool) -> int:
    return int(lib.CAREFUL_BATCH_SYNC) if sync else 0


async def _in_export(remote: BlockClient, item: Item, flags: int) -> Item:
    """Runs an item whose names are relative to the whole export; returns the answer."""
    path = os.fsdecode(item.text or item.name)
    try:
        return await _run_in(remote, ".", item, flags)
    except CarefulError as error:
        if error.errno != errno.EISDIR:
            raise
    # The host has several exports: the first component names the export of the item.
    components = [os.fsdecode(name).partition("/") for name in (item.name, item.text) if name]
    if not all(rest for _, _, rest in components):
        raise CarefulError(
            errno.EBUSY, "is the exported directory itself", remote.name(shown(path))
        )
    if len({top for top, _, _ in components}) > 1:
        raise CarefulError(errno.EXDEV, _RENAME_ERRORS[errno.EXDEV], remote.name(shown(path)))
    export = components[0][0]
    prefix_bytes = len(os.fsencode(export)) + 1
    item = item._replace(name=item.name[prefix_bytes:], text=item.text[prefix_bytes:])
    return await _run_in(remote, export, item, flags)


async def _run_in(remote: BlockClient, folder: str, item: Item, flags: int) -> Item:
    try:
        [answer] = await run_items(RemoteTree(remote, folder), [item], flags)
    except CarefulError as error:
        if error.errno != errno.EBADF:
            raise
        text = "the session was reset; the request may have been carried out"
        raise CarefulError(errno.ECONNRESET, text, error.what) from None
    return answer


async def _is_export(remote: BlockClient, path: str) -> bool:
    """Reports whether a name is the whole export, or may be one of several exports."""
    return path == "." or ("/" not in path and not (await remote.stat(".")).inode)


async def _run(remote: BlockClient, op: int, path: str, attr: bytes = b"") -> Item:
    folder, name = posixpath.split(path)
    item = Item(op, os.fsencode(name), attr)
    [answer] = await run_items(RemoteTree(remote, folder or "."), [item])
    return answer
