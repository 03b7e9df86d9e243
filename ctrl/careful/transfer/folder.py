"""Opens local files and directories below a root without following symlinks.

A server names the files that are written below a target, and another user can change a tree
while it is read. No symlink below the root is followed, even if it leads back into the tree.
The path of the root itself comes from the user and is followed.
"""

from __future__ import annotations

import errno
import os
import stat

from careful._abi import lib
from careful.closing import Closing, descriptor
from careful.errors import CarefulError, Option, check, shown

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC


def below(path: str, root: str | None) -> str:
    """Returns the part of a path below the root ("": the current directory), or "" if outside."""
    prefix = "/" if root is None else os.path.join(root, "")
    if root is None or path == root or not path.startswith(prefix):
        return ""
    return path[len(prefix) :].strip("/")


def open_folder(path: str, root: str | None, flags: int = os.O_RDONLY) -> int:
    """Opens a directory; follows no symlink below the root. Raises OSError."""
    rest = below(path, root)
    if not rest:
        return os.open(path or ".", flags | _DIRECTORY)
    with descriptor(os.open(root or ".", os.O_PATH | _DIRECTORY)) as base:
        rc = int(lib.careful_open_beneath(base, os.fsencode(rest), flags | _DIRECTORY))
    if rc in (-errno.ELOOP, -errno.EXDEV):
        text = "a symbolic link on the path is not followed"
        raise CarefulError(-rc, text, shown(path))
    return check(rc, shown(path))


def open_file(path: str, root: str | None) -> int:
    """Opens a file to read it, as open_folder() does. Raises OSError: a directory, too."""
    with Folder(path, root) as folder:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_NOFOLLOW if folder.is_below else 0
        fd = os.open(folder.name, flags, dir_fd=folder.fd)
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return fd


class Folder(Closing):
    """The parent directory of a path, open until close() or the end of a `with`.

    Args:
        path: the path of an entry in the directory.
        root: the directory below which no symlink is followed; None for no root.

    Attributes:
        fd: the directory, opened with O_PATH.
        name: the last component of the path.
    """

    def __init__(self, path: str, root: str | None) -> None:
        folder, name = os.path.split(path)
        self.name = name or "."
        self.is_below = bool(below(path, root))
        self.fd = open_folder(folder, root, os.O_PATH)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def stat(self) -> os.stat_result | None:
        """Returns the entry's attributes, or None; follows a symlink only outside the root."""
        try:
            return os.stat(self.name, dir_fd=self.fd, follow_symlinks=not self.is_below)
        except FileNotFoundError:
            return None

    def is_taken(self) -> bool:
        try:
            os.stat(self.name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def make(self, mode: int) -> bool:
        """Makes a directory; returns False if it exists. Raises OSError; ENOTDIR: it is a file."""
        try:
            os.mkdir(self.name, mode, dir_fd=self.fd)
        except FileExistsError:
            existing = self.stat()
            if existing is None or not stat.S_ISDIR(existing.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
            return False
        return True


def exists_error(name: str, does: str = "replaces") -> CarefulError:
    """Returns the error for a file that may not be replaced."""
    return CarefulError(errno.EEXIST, ("exists; ", Option.REPLACE, f" {does} it"), name)


def current_umask() -> int:
    """Returns the current umask of this process; a program can change it at any time."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
