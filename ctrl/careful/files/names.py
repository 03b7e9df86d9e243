"""Makes, renames and removes names at a host, and appends to files.

Owns the errors of these calls. A rename or an append runs in the export, any other item in the
directory above its name.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from careful._abi import lib
from careful.errors import CarefulError, Option, shown
from careful.transfer.file.partial_file import digest_of
from careful.transfer.folder import current_umask
from careful.transfer.options import Options
from careful.transfer.protocol.batch import BYTES, Item, RemoteTree, packed_attr, run_items
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING
from careful.transfer.tree.direction import RemoteEnd
from careful.transfer.tree.mkpath import make_path

Data = bytes | bytearray | memoryview

_RENAME_ERRORS = {
    errno.EINVAL: "a directory cannot be moved into itself",
    errno.EXDEV: "cannot be renamed to another file system or export",
}


async def mkdir(remote: BlockClient, path: str, mode: int, parents: bool, exist_ok: bool) -> None:
    """Makes a directory; see AsyncHost.mkdir()."""
    name = remote.name(shown(path))
    if parents:
        await make_path(RemoteEnd(remote), posixpath.dirname(path), Options(make_path=True))
    made = None
    if await _is_export(remote, path):
        await remote.stat(path)
    else:
        attr = NOTHING._replace(mode=stat.S_IFDIR | mode & 0o777 & ~current_umask())
        made = await _run(remote, lib.CAREFUL_ITEM_DIRECTORY, path, packed_attr(attr))
        if made.status == errno.ENOTDIR:
            raise CarefulError(errno.EEXIST, "exists and is not a directory", name)
        if made.status:
            raise CarefulError(made.status, "", name)
    if (made is None or made.op != lib.CAREFUL_ITEM_DIRECTORY) and not exist_ok:
        raise CarefulError(errno.EEXIST, "", name)


async def remove(remote: BlockClient, path: str) -> None:
    """Removes a file, a symlink or an empty directory; see AsyncHost.remove()."""
    name = remote.name(shown(path))
    if await _is_export(remote, path):
        await remote.stat(path)
        raise CarefulError(errno.EBUSY, "is the exported directory itself", name)
    # For the protocol, a missing name is no error; a symlink may dangle.
    there = await _run(remote, lib.CAREFUL_ITEM_READ, path)
    if there.status == errno.ENOENT:
        raise CarefulError(errno.ENOENT, "", name)
    gone = await _run(remote, lib.CAREFUL_ITEM_REMOVE, path)
    if gone.status:
        text = "a transfer is using it" if gone.status == errno.EBUSY else ""
        raise CarefulError(gone.status, text, name)


async def rename(remote: BlockClient, source: str, target: str, replace: bool, sync: bool) -> None:
    """Renames a path; see AsyncHost.rename()."""
    item = Item(lib.CAREFUL_ITEM_RENAME, os.fsencode(target), text=os.fsencode(source))
    flags = (lib.CAREFUL_BATCH_REPLACE if replace else 0) | _sync_flag(sync)
    code = (await _in_export(remote, item, flags)).status
    if code == errno.EEXIST:
        raise CarefulError(
            code, ("exists; ", Option.REPLACE, " replaces it"), remote.name(shown(target))
        )
    if code in _RENAME_ERRORS:
        raise CarefulError(code, _RENAME_ERRORS[code], remote.name(shown(source)))
    if code:
        raise CarefulError(code, "", remote.name(shown(source)))


async def append(remote: BlockClient, path: str, data: Data, mode: int, sync: bool) -> None:
    """Appends to a file; see AsyncHost.append()."""
    attr = packed_attr(NOTHING._replace(mode=stat.S_IFREG | mode))
    with memoryview(data) as given, given.cast("B") as view:
        for at in range(0, len(view) or 1, BYTES):
            part = bytes(view[at : at + BYTES])
            item = Item(
                lib.CAREFUL_ITEM_APPEND, os.fsencode(path), attr, data=part, digest=digest_of(part)
            )
            code = (await _in_export(remote, item, _sync_flag(sync))).status
            if code:
                raise CarefulError(code, "", remote.name(shown(path)))


def _sync_flag(sync: bool) -> int:
    return int(lib.CAREFUL_BATCH_SYNC) if sync else 0


async def _in_export(remote: BlockClient, item: Item, flags: int) -> Item:
    """Runs an item whose names are relative to the whole export; returns its answer."""
    path = os.fsdecode(item.text or item.name)
    try:
        return await _once(remote, ".", item, flags)
    except CarefulError as error:
        if error.errno != errno.EISDIR:
            raise
    # The host has several exports: the first component names one, and an item must stay inside.
    tops = [os.fsdecode(name).partition("/") for name in (item.name, item.text) if name]
    if not all(rest for _, _, rest in tops):
        raise CarefulError(
            errno.EBUSY, "is the exported directory itself", remote.name(shown(path))
        )
    if len({top for top, _, _ in tops}) > 1:
        raise CarefulError(errno.EXDEV, _RENAME_ERRORS[errno.EXDEV], remote.name(shown(path)))
    export = tops[0][0]
    inside = len(os.fsencode(export)) + 1
    item = item._replace(name=item.name[inside:], text=item.text[inside:])
    return await _once(remote, export, item, flags)


async def _once(remote: BlockClient, folder: str, item: Item, flags: int) -> Item:
    try:
        [found] = await run_items(RemoteTree(remote, folder), [item], flags)
    except CarefulError as error:
        if error.errno != errno.EBADF:
            raise
        text = "the session was reset; whether it was done is not known"
        raise CarefulError(errno.ECONNRESET, text, error.what) from None
    return found


async def _is_export(remote: BlockClient, path: str) -> bool:
    """Reports whether a name is the whole export, or may be one of several exports."""
    return path == "." or ("/" not in path and not (await remote.stat(".")).inode)


async def _run(remote: BlockClient, op: int, path: str, attr: bytes = b"") -> Item:
    folder, name = posixpath.split(path)
    item = Item(op, os.fsencode(name), attr)
    [found] = await run_items(RemoteTree(remote, folder or "."), [item])
    return found
