"""Names in a host's directories: made and removed.

Owns what Python's own errors they end with. It runs items of transfer/protocol/batch.py in the
directory that a name stands in; a rename is none of them, as the block protocol has none.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat

from careful._abi import lib
from careful.errors import CarefulError
from careful.transfer.direction import There
from careful.transfer.file.local import current_umask, shown
from careful.transfer.mkpath import make_path
from careful.transfer.options import Options
from careful.transfer.protocol.batch import Item, RemoteTree, asked, packed_attr
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import NOTHING


async def mkdir(remote: BlockClient, path: str, mode: int, parents: bool, exist_ok: bool) -> None:
    """Make a directory; see AsyncHost.mkdir()."""
    name = remote.name(shown(path))
    if parents:
        await make_path(There(remote), posixpath.dirname(path), Options(make_path=True))
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
    """Remove a file, a symlink or an empty directory; see AsyncHost.remove()."""
    name = remote.name(shown(path))
    if await _is_export(remote, path):
        await remote.stat(path)
        raise CarefulError(errno.EBUSY, "is what the host exports", name)
    # To the protocol its absence is no error; a symlink may lead nowhere.
    there = await _run(remote, lib.CAREFUL_ITEM_READ, path)
    if there.status == errno.ENOENT:
        raise CarefulError(errno.ENOENT, "", name)
    gone = await _run(remote, lib.CAREFUL_ITEM_REMOVE, path)
    if gone.status:
        text = "a transfer is using it" if gone.status == errno.EBUSY else ""
        raise CarefulError(gone.status, text, name)


async def _is_export(remote: BlockClient, path: str) -> bool:
    """Whether a name is all that the host exports, or could be one of several exports."""
    return path == "." or ("/" not in path and not (await remote.stat(".")).inode)


async def _run(remote: BlockClient, op: int, path: str, attr: bytes = b"") -> Item:
    """Do something with a name; what that was answered."""
    folder, name = posixpath.split(path)
    item = Item(op, os.fsencode(name), attr)
    [found] = await asked(RemoteTree(remote, folder or "."), [item])
    return found
