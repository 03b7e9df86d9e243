"""The local end of a transfer: temporary files that become real ones, and digests.

Owns what must never be seen half-written: a file is made under another name in
its directory, synced, and renamed. The only place that imports xxhash.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from array import array
from collections.abc import Iterable
from contextlib import suppress

import xxhash

from careful._abi import ffi, lib
from careful.errors import CarefulError, Option, check, from_os, shown
from careful.transfer.folder import Folder, current_umask

_RENAME_NOREPLACE = 1
#: Longest part of a name that its temporary name repeats, bytes (NAME_MAX is 255).
_KEPT_NAME_BYTES = 200


def digest_of_blocks(digests: Iterable[int]) -> int:
    """A file's digest: XXH3 over its blocks' digests, each 8 bytes big-endian."""
    joined = array("Q", digests)
    if sys.byteorder == "little":
        joined.byteswap()
    return digest_of(joined.tobytes())


def digest_of(data: bytes) -> int:
    """XXH3 of some bytes."""
    return int(xxhash.xxh3_64_intdigest(data))


def digest_of_range(fd: int, offset: int, nbytes: int) -> int:
    """XXH3 of a byte range of an open file. Lets other threads run meanwhile.

    Raises:
        CarefulError: it cannot be read, or the file ends before the range does.
    """
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    got = lib.careful_digest(fd, offset, nbytes, lib.CAREFUL_BLOCK_XXH3, digest)
    check(got, "", "the file shrank while it was being read" if got == -errno.ENODATA else "")
    return int.from_bytes(bytes(digest[0:got]), "big")


def settled(fd: int, name: str) -> int:
    """The descriptor by which a file is read: itself, or that of a copy, see careful_settle().

    Raises:
        CarefulError: it cannot be read; it stays open.
    """
    copy = ffi.new("int *")
    check(lib.careful_settle(fd, copy), name)
    if copy[0] < 0:
        return fd
    os.close(fd)
    return int(copy[0])


def temporary_name(path: str, tag: int = 0) -> str:
    """A name beside `path` that says what it is of.

    Args:
        path: of the file to be.
        tag: makes the name, 64 bits; by default one that no other transfer has.
    """
    folder, name = os.path.split(path)
    kept = os.fsdecode(os.fsencode(name)[:_KEPT_NAME_BYTES])
    tag = tag or int.from_bytes(os.urandom(8), "big")
    return os.path.join(folder, f".{kept}.careful-{tag:016x}.part")


def rename_new(source: str, target: str, folder: int) -> None:
    """Rename in an open directory, where nothing has the name `target` so far.

    Raises:
        FileExistsError: something has.
    """
    raw = os.fsencode(source), os.fsencode(target)
    done = lib.renameat2(folder, raw[0], folder, raw[1], _RENAME_NOREPLACE)
    if done == 0:
        return
    code = ffi.errno
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), target)
    # A file system without RENAME_NOREPLACE.
    os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(source, dir_fd=folder)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has nothing to sync
            raise
    finally:
        os.close(fd)


def _is_memory(fd: int) -> bool:
    """Reports whether the file lies in memory: seals exist on tmpfs, memfd and hugetlbfs alone."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


def allocate(fd: int, nbytes: int, sparse: bool = False) -> None:
    """Give a new file its size and the room for it, where that is cheap.

    Args:
        fd: of the file.
        nbytes: its size.
        sparse: whether it gets no room in advance, as parts of it will be holes.

    In memory (tmpfs) it is not: every page would be made before the first byte
    comes; a quarter of a second a GiB. There it is enough that the file could fit.

    Raises:
        OSError: there is no room for it.
    """
    if nbytes == 0:
        return
    if sparse:
        os.ftruncate(fd, nbytes)
        return
    if _is_memory(fd):
        room = os.fstatvfs(fd)
        if room.f_blocks and nbytes > room.f_bavail * room.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, nbytes)
        return
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        os.ftruncate(fd, nbytes)


def special_there(name: str) -> CarefulError:
    """A device, fifo or socket has a name that a file was to get."""
    return CarefulError(errno.ENOTSUP, "is a special file and is never replaced", name)


class Partial:
    """A file that is being written, under a temporary name, and gone if it fails.

    Args:
        path: the name it gets in the end.
        nbytes: its size; the room is taken at once.
        mode: permission bits; the umask is applied.
        replace: whether an existing file may be replaced.
        sparse: whether no room is taken.
        root: below which no symlink is followed; None: there is none.

    Attributes:
        folder: that it stands in.
        temporary: its name there.

    Raises:
        CarefulError: it cannot be made, there is no room for it, or it exists.
    """

    def __init__(
        self,
        path: str,
        nbytes: int,
        mode: int,
        replace: bool,
        sparse: bool = False,
        root: str | None = None,
    ) -> None:
        self._prepare(path, mode, replace, root)
        try:
            self.fd = self._open_new()
            allocate(self.fd, nbytes, sparse)
        except OSError as error:
            self.discard()
            raise from_os(error, shown(path)) from None

    def _open_new(self) -> int:
        """Make it, locked, so that nobody clears it away."""
        while True:
            fd = self._open(temporary_name(self.folder.name), os.O_EXCL)
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)  # somebody had done so already

    def _prepare(self, path: str, mode: int, replace: bool, root: str | None) -> None:
        self.path = path
        self.replace = replace
        self.fd = -1
        self._mode = mode & 0o777 & ~current_umask()
        try:
            self.folder = Folder(path, root)
        except OSError as error:
            raise from_os(error, shown(path)) from None
        try:
            self._check_name()
        except OSError as error:
            self.folder.close()
            raise from_os(error, shown(path)) from None

    def _check_name(self) -> None:
        there = self.folder.stat()
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise CarefulError(errno.EISDIR, "is a directory", shown(self.path))
        if there is not None and not (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
            raise special_there(shown(self.path))
        if not self.replace and self.folder.is_taken():
            raise self._exists()

    def _open(self, temporary: str, flags: int) -> int:
        self.temporary = temporary
        flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(temporary, flags, 0o600, dir_fd=self.folder.fd)

    def _exists(self) -> CarefulError:
        return CarefulError(
            errno.EEXIST, ("exists; ", Option.REPLACE, " replaces it"), shown(self.path)
        )

    def commit(self, sync: bool, mtime_ns: int | None = None, exact: bool = False) -> None:
        """Make it durable and give it its name. Its directory is not synced.

        Args:
            sync: whether it is made durable.
            mtime_ns: its time; None: as it is.
            exact: whether a file that replaces another gets its own mode, not the other's.

        Raises:
            CarefulError: that failed.
        """
        try:
            os.fchmod(self.fd, self._mode if exact else self._kept_mode())
            if mtime_ns is not None:
                os.utime(self.fd, ns=(os.fstat(self.fd).st_atime_ns, mtime_ns))
            if sync:
                os.fsync(self.fd)
            own, name = self.folder.fd, self.folder.name
            if self.replace:
                os.replace(self.temporary, name, src_dir_fd=own, dst_dir_fd=own)
            else:
                rename_new(self.temporary, name, own)
        except FileExistsError:
            raise self._exists() from None
        except OSError as error:
            raise from_os(error, shown(self.path)) from None
        self.close()

    def _kept_mode(self) -> int:
        """The mode of the file that this one replaces; of a new one, its own."""
        there = self.folder.stat() if self.replace else None
        if there is not None and stat.S_ISREG(there.st_mode):
            return there.st_mode & 0o777
        return self._mode

    def discard(self) -> None:
        """Remove it, unless it has been committed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.folder.fd)
        self.folder.close()

    def close(self) -> None:
        """Let go of it, and leave it where it is."""
        os.close(self.fd)
        self.fd = -1
        self.folder.close()


def write_file(path: str, data: bytes, sync: bool, mode: int = 0o666) -> None:
    """Make a file of what it is to hold, or replace it: all of that, or nothing.

    Args:
        path: its name.
        data: its contents.
        sync: whether it is durable when this returns.
        mode: permission bits of a new file; the umask is applied.

    Raises:
        CarefulError: that failed.
    """
    part = Partial(path, len(data), mode, replace=True)
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(part.fd, data[done:], done)
        part.commit(sync)
        if sync:
            sync_directory(os.path.dirname(path))
    except OSError as error:
        raise from_os(error, shown(path)) from None
    finally:
        part.discard()
