"""Files and directories of a tree, opened beneath the directory that the user named.

A server names what is written below a target, and another user may change a tree while it is
read. So no symlink below the directory is followed, not even one that stays within. The
directory's own path is the user's, and is followed.
"""

from __future__ import annotations

import errno
import os
import stat

from careful._abi import lib
from careful.errors import CarefulError, check, shown

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC


def below(path: str, root: str | None) -> str:
    """What of a path lies below the root; "": the path is the user's own.

    Args:
        path: as it was joined from the root.
        root: a directory, "" for the current one; None: there is none.
    """
    prefix = "/" if root is None else os.path.join(root, "")
    if root is None or path == root or not path.startswith(prefix):
        return ""
    return path[len(prefix) :].strip("/")


def open_folder(path: str, root: str | None, flags: int = os.O_RDONLY) -> int:
    """Open a directory; below the root nothing is followed.

    Raises:
        OSError: there is no such directory; a symlink is on the way to it.
    """
    rest = below(path, root)
    if not rest:
        return os.open(path or ".", flags | _DIRECTORY)
    base = os.open(root or ".", os.O_PATH | _DIRECTORY)
    try:
        rc = int(lib.careful_open_beneath(base, os.fsencode(rest), flags | _DIRECTORY))
    finally:
        os.close(base)
    if rc in (-errno.ELOOP, -errno.EXDEV):
        text = "a symbolic link is on the way, and is not followed"
        raise CarefulError(-rc, text, shown(path))
    return check(rc, shown(path))


def open_file(path: str, root: str | None) -> int:
    """Open a file to read it; below the root nothing is followed.

    Raises:
        OSError: it cannot be opened; it is a directory; a symlink is there, or on the way.
    """
    with Folder(path, root) as folder:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_NOFOLLOW if folder.is_below else 0
        fd = os.open(folder.name, flags, dir_fd=folder.fd)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return fd


class Folder:
    """The directory that a path's last component stands in; `with` it, or close() it.

    Args:
        path: of something in it.
        root: below which nothing is followed; None: there is none.

    Attributes:
        fd: of the directory, opened with O_PATH.
        name: the last component.

    Raises:
        OSError: as of open_folder().
    """

    def __init__(self, path: str, root: str | None) -> None:
        folder, name = os.path.split(path)
        self.name = name or "."
        self.is_below = bool(below(path, root))
        self.fd = open_folder(folder, root, os.O_PATH)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def stat(self) -> os.stat_result | None:
        """What stands there, a symlink followed only where it is the user's; None: nothing."""
        try:
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=not self.is_below)
        except FileNotFoundError:
            return None

    def is_taken(self) -> bool:
        """Whether anything has the name."""
        try:
            os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def make(self, mode: int) -> bool:
        """Make it a directory; whether it was not there.

        Raises:
            OSError: it cannot be made; ENOTDIR: something else has the name.
        """
        try:
            os.mkdir(self.name, mode, dir_fd=self.fd)
        except FileExistsError:
            found = self.stat()
            if found is None or not stat.S_ISDIR(found.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return False
        return True
