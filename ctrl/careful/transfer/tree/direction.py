"""The two ends of a transfer and its direction: everything that differs between get and put.

Here works on directories of this machine, There on those of a peer. A Direction names the end
that is the source and the end that is the target, and copies single files.
"""

from __future__ import annotations

import errno
import os
import posixpath
from functools import partial
from typing import Protocol

from careful._abi import lib
from careful.errors import CarefulError, from_os, shown
from careful.transfer.file.compare import common_bytes
from careful.transfer.file.find_partials import clear_local, clear_remote
from careful.transfer.file.move import Get, Put
from careful.transfer.file.partial_file import sync_directory
from careful.transfer.folder import Folder, current_umask
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.batch import Item, LocalTree, RemoteTree, Tree, asked
from careful.transfer.protocol.block import Attr, BlockClient, Listing, relative
from careful.transfer.protocol.entries import local_attr
from careful.transfer.tasks import in_thread
from careful.transfer.tree.scan import list_local, not_there


class End(Protocol):
    """The files of one machine, as a transfer uses them.

    Attributes:
        mask: permission bits that new directories do not get.
    """

    mask: int

    def name(self, path: str) -> str:
        """Returns a path as messages show it."""

    def path(self, given: str) -> str:
        """Turns a path that the user wrote into one for the other methods."""

    def join(self, folder: str, name: str) -> str:
        """Returns the path of a name below a directory."""

    def tree(self, folder: str) -> Tree:
        """Returns a directory in which batches of items run."""

    async def stat(self, path: str, follow: bool) -> Attr | None:
        """Returns the attributes, or None if nothing has the name.

        Symlinks of a peer are always followed.
        """

    async def listing(self, folder: str) -> Listing:
        """Lists everything below a directory, parents first."""

    async def make_directory(self, path: str, mode: int) -> bool:
        """Makes a directory that its owner can write to; returns False if it existed. Raises
        CarefulError: the directory cannot be made, or the name belongs to another file.
        """

    async def sync_name(self, folder: str) -> None:
        """Makes the names in a directory durable, unless each file has done so."""

    async def clear(self, folder: str, names: list[str], whole: str) -> None:
        """Removes partial files that no transfer continues.

        Args:
            folder: the directory above them.
            names: their names below the directory.
            whole: the source that is complete, as journals name it, or "".
        """


class Here:
    """The files of this machine.

    Attributes:
        root: the target of a get, or the tree that a put sends. No symlink below it is followed.
    """

    def __init__(self) -> None:
        self.mask = current_umask()
        self.root: str | None = None

    def name(self, path: str) -> str:
        return shown(path)

    def path(self, given: str) -> str:
        return given.rstrip("/") or given[:1]

    def join(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def tree(self, folder: str) -> LocalTree:
        return LocalTree(folder, self.root)

    async def stat(self, path: str, follow: bool) -> Attr | None:
        try:
            return local_attr(os.stat(path, follow_symlinks=follow))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise from_os(error, shown(path)) from None

    async def listing(self, folder: str) -> Listing:
        return await in_thread(partial(list_local, folder, self.root))

    async def make_directory(self, path: str, mode: int) -> bool:
        try:
            with Folder(path, self.root) as folder:
                return folder.make(mode & 0o777 & ~self.mask | 0o700)
        except NotADirectoryError:
            raise _no_directory(shown(path)) from None
        except OSError as error:
            raise from_os(error, shown(path)) from None

    async def sync_name(self, folder: str) -> None:
        try:
            await in_thread(partial(sync_directory, folder))
        except OSError as error:
            raise from_os(error, shown(folder or ".")) from None

    async def clear(self, folder: str, names: list[str], whole: str) -> None:
        paths = [os.path.join(folder, name) for name in names]
        await in_thread(partial(clear_local, paths, whole, self.root))


class There:
    """The files of a peer."""

    def __init__(self, remote: BlockClient) -> None:
        self.remote, self.mask = remote, current_umask()

    def name(self, path: str) -> str:
        return self.remote.name(shown(path))

    def path(self, given: str) -> str:
        return relative(given)

    def join(self, folder: str, name: str) -> str:
        return posixpath.normpath(posixpath.join(folder, name))

    def tree(self, folder: str) -> RemoteTree:
        return RemoteTree(self.remote, folder)

    async def stat(self, path: str, follow: bool) -> Attr | None:
        try:
            return await self.remote.stat(path)
        except CarefulError as error:
            if not_there(error):
                return None
            raise

    async def link(self, path: str) -> Attr | None:
        """Returns the attributes of a symlink itself, or None if the name is not a symlink."""
        folder, name = posixpath.split(path)
        read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(name))
        try:
            [found] = await asked(RemoteTree(self.remote, folder or "."), [read])
        except CarefulError as error:
            # EISDIR: above several exports, where no symlink is.
            if not_there(error) or error.errno == errno.EISDIR:
                return None
            raise
        is_link = not found.status and found.op == lib.CAREFUL_ITEM_SYMLINK
        return found.found if is_link else None

    async def listing(self, folder: str) -> Listing:
        return await self.remote.list(folder, True)

    async def make_directory(self, path: str, mode: int) -> bool:
        there = await self.stat(path, follow=False)
        if there is not None and not there.is_dir:
            raise _no_directory(self.name(path))
        if there is None:
            await self.remote.mkdir(path, mode & 0o777 & ~self.mask | 0o700)
        return there is None

    async def sync_name(self, folder: str) -> None:
        """Does nothing: the peer syncs the name of each file."""

    async def clear(self, folder: str, names: list[str], whole: str) -> None:
        await clear_remote(self.remote, folder, names, whole)


def _no_directory(name: str) -> CarefulError:
    return CarefulError(errno.ENOTDIR, "exists and is not a directory", name)


class Direction:
    """The source and the target of a transfer.

    Args:
        remote: the tree of the peer.
        fetch: whether the peer is the source.

    Attributes:
        follows: whether a symlink that the user named as a source stands for its target.
    """

    def __init__(self, remote: BlockClient, fetch: bool) -> None:
        self.remote, self.fetch, self.follows = remote, fetch, True
        self.here = Here()
        here, there = self.here, There(remote)
        self.source: End = there if fetch else here
        self.target: End = here if fetch else there

    async def copy(
        self, source: str, target: str, options: Options, progress: Progress
    ) -> FileResult | None:
        """Moves one file; see file.move.Move."""
        move, here = (Get, target) if self.fetch else (Put, source)
        return await move(self.remote, (source, target), options, progress, self._root(here)).run()

    async def common(self, source: str, target: str, block_bytes: int) -> tuple[int, bool]:
        """Returns the count of bytes that two files share, and whether the files are equal. Raises
        CarefulError: a file cannot be read.
        """
        remote, local = (source, target) if self.fetch else (target, source)
        return await common_bytes(self.remote, remote, local, block_bytes, self._root(local))

    def _root(self, path: str) -> str | None:
        return (
            self.here.root if self.here.root is not None or self.follows else os.path.dirname(path)
        )

    async def attributes(self, source: str, follow: bool) -> Attr:
        """Returns the attributes of a source. Raises CarefulError: the source does not exist."""
        own = self.fetch and not follow
        found = await There(self.remote).link(source) if own else None
        found = found or await self.source.stat(source, follow)
        if found is None:
            raise CarefulError(errno.ENOENT, "", self.source.name(source))
        return found
