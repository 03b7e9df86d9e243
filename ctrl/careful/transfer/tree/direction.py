"""The two ends of a transfer and its direction: everything that differs between get and put."""

from __future__ import annotations

import errno
import os
import posixpath
from functools import partial

from careful._abi import lib
from careful.errors import CarefulError, Option, about, from_os, shown
from careful.transfer.file.compare import common_bytes
from careful.transfer.file.find_partials import clear_local, clear_remote
from careful.transfer.file.move import Get, Put
from careful.transfer.file.partial_file import sync_directory
from careful.transfer.folder import Folder, current_umask
from careful.transfer.options import FileResult, Options, Progress
from careful.transfer.protocol.batch import Item, LocalTree, RemoteTree, run_items
from careful.transfer.protocol.block import BlockClient
from careful.transfer.protocol.entries import Attr, Listing, local_attr, relative
from careful.transfer.tasks import in_thread
from careful.transfer.tree.scan import is_missing, list_local

#: Permission bits of directories that a command makes above its target.
MODE = 0o777


class LocalEnd:
    """The files of this machine.

    Attributes:
        mask: permission bits that new directories do not get.
        root: the target of a get, or the tree that a put sends. No symlink below it is followed.
    """

    def __init__(self) -> None:
        self.mask = current_umask()
        self.root: str | None = None

    def name(self, path: str) -> str:
        """Returns a path as messages show it."""
        return shown(path)

    def path(self, path: str) -> str:
        """Turns a path that the user wrote into one for the other methods."""
        return path.rstrip("/") or path[:1]

    def join(self, folder: str, name: str) -> str:
        """Returns the path of a name below a directory."""
        return os.path.join(folder, name)

    def tree(self, folder: str) -> LocalTree:
        """Returns a directory in which batches of items run."""
        return LocalTree(folder, self.root)

    async def stat(self, path: str, follow: bool) -> Attr | None:
        """Returns the attributes, or None."""
        try:
            return local_attr(os.stat(path, follow_symlinks=follow))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise from_os(error, shown(path)) from None

    async def listing(self, folder: str) -> Listing:
        """Lists everything below a directory, parents first."""
        return await in_thread(partial(list_local, folder, self.root))

    async def make_directory(self, path: str, mode: int) -> bool:
        """Makes a directory that its owner can write to; returns False if it existed."""
        try:
            with Folder(path, self.root) as folder:
                return folder.make(mode & 0o777 & ~self.mask | 0o700)
        except NotADirectoryError:
            raise _no_directory(shown(path)) from None
        except OSError as error:
            raise from_os(error, shown(path)) from None

    async def sync_name(self, folder: str) -> None:
        """Makes the names in a directory durable."""
        with about(shown(folder or ".")):
            await in_thread(partial(sync_directory, folder))

    async def clear(self, folder: str, names: list[str], complete_source: str) -> None:
        """Removes partial files that no transfer continues.

        names: below the directory. complete_source: as journals name it, or "".
        """
        paths = [os.path.join(folder, name) for name in names]
        await in_thread(partial(clear_local, paths, complete_source, self.root))


class RemoteEnd:
    """The files of a peer; the methods are those of LocalEnd."""

    def __init__(self, remote: BlockClient) -> None:
        self.remote, self.mask = remote, current_umask()

    def name(self, path: str) -> str:
        return self.remote.name(shown(path))

    def path(self, path: str) -> str:
        return relative(path)

    def join(self, folder: str, name: str) -> str:
        return posixpath.normpath(posixpath.join(folder, name))

    def tree(self, folder: str) -> RemoteTree:
        return RemoteTree(self.remote, folder)

    async def stat(self, path: str, follow: bool) -> Attr | None:
        """Returns the attributes, or None; always follows symlinks."""
        try:
            return await self.remote.stat(path)
        except CarefulError as error:
            if is_missing(error):
                return None
            raise

    async def link(self, path: str) -> Attr | None:
        """Returns the attributes of a symlink itself; None if the path is no symlink."""
        folder, name = posixpath.split(path)
        read = Item(lib.CAREFUL_ITEM_READ, os.fsencode(name))
        try:
            [answer] = await run_items(RemoteTree(self.remote, folder or "."), [read])
        except CarefulError as error:
            # EISDIR: the directory above several exports has no symlinks.
            if is_missing(error) or error.errno == errno.EISDIR:
                return None
            raise
        is_link = not answer.status and answer.op == lib.CAREFUL_ITEM_SYMLINK
        return answer.attributes if is_link else None

    async def listing(self, folder: str) -> Listing:
        return await self.remote.list(folder, True)

    async def make_directory(self, path: str, mode: int) -> bool:
        existing = await self.stat(path, follow=False)
        if existing is not None and not existing.is_dir:
            raise _no_directory(self.name(path))
        if existing is None:
            await self.remote.mkdir(path, mode & 0o777 & ~self.mask | 0o700)
        return existing is None

    async def sync_name(self, folder: str) -> None:
        """Does nothing: the peer syncs the name of each file."""

    async def clear(self, folder: str, names: list[str], complete_source: str) -> None:
        await clear_remote(self.remote, folder, names, complete_source)


End = LocalEnd | RemoteEnd


def _no_directory(name: str) -> CarefulError:
    return CarefulError(errno.ENOTDIR, "exists and is not a directory", name)


async def make_path(end: End, folder: str, options: Options) -> int:
    """Makes a directory and its parents if they are missing and options.make_path is set; returns
    the count made. Raises CarefulError.
    """
    absent: list[str] = []
    while folder not in ("", ".", "/"):
        existing = await end.stat(folder, follow=True)
        if existing is not None:
            if existing.is_file or existing.is_special:
                raise CarefulError(errno.ENOTDIR, "is not a directory", end.name(folder))
            break
        absent.append(folder)
        folder = posixpath.dirname(folder)
    if absent and not options.make_path:
        text = ("no such directory; ", Option.MAKE_PATH, " makes it")
        raise CarefulError(errno.ENOENT, text, end.name(absent[0]))
    if options.dry_run:
        return 0
    return sum([await end.make_directory(one, MODE) for one in reversed(absent)])


class Direction:
    """The source and the target of a transfer; copies single files.

    Attributes:
        fetch: whether the peer is the source.
        follows_symlinks: whether a symlink that the user named stands for its target.
    """

    def __init__(self, remote: BlockClient, fetch: bool) -> None:
        self.remote, self.fetch, self.follows_symlinks = remote, fetch, True
        self.here = LocalEnd()
        here, there = self.here, RemoteEnd(remote)
        self.source: End = there if fetch else here
        self.target: End = here if fetch else there

    async def copy(
        self, source: str, target: str, options: Options, progress: Progress
    ) -> FileResult | None:
        """Moves one file, as Move.run() does."""
        move, here = (Get, target) if self.fetch else (Put, source)
        return await move(self.remote, (source, target), options, progress, self._root(here)).run()

    async def compare(self, source: str, target: str, block_bytes: int) -> tuple[int, bool]:
        """Returns the bytes that two files share, and whether the files are equal."""
        remote, local = (source, target) if self.fetch else (target, source)
        return await common_bytes(self.remote, remote, local, block_bytes, self._root(local))

    def _root(self, path: str) -> str | None:
        if self.here.root is not None or self.follows_symlinks:
            return self.here.root
        return os.path.dirname(path)

    async def attributes(self, source: str, follow: bool) -> Attr:
        """Returns the attributes of a source. Raises CarefulError: the source does not exist."""
        is_link = self.fetch and not follow
        attr = await RemoteEnd(self.remote).link(source) if is_link else None
        attr = attr or await self.source.stat(source, follow)
        if attr is None:
            raise CarefulError(errno.ENOENT, "", self.source.name(source))
        return attr
