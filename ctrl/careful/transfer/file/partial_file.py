"""The local end of a transfer: temporary files that become real ones, and digests.

A file that must never appear half-written is written under another name in its directory, synced
and renamed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from array import array
from collections.abc import Iterable
from contextlib import suppress

import xxhash

from careful._abi import ffi, lib
from careful.errors import CarefulError, about, check, from_os, shown
from careful.transfer.folder import Folder, current_umask, exists_error

_RENAME_NOREPLACE = 1
#: The most of a name that its temporary name repeats, bytes (NAME_MAX is 255).
_NAME_BYTES_MAX = 200
#: How long to wait for another transfer's lock, seconds: after a killed transfer, carefuld may
#: still clean up.
LOCK_S = 3.0


def digest_of_blocks(digests: Iterable[int]) -> int:
    """Returns a file's digest: XXH3 over its blocks' digests, each 8 bytes big-endian."""
    joined = array("Q", digests)
    if sys.byteorder == "little":
        joined.byteswap()
    return digest_of(joined.tobytes())


def digest_of(data: bytes) -> int:
    """Returns the XXH3 of bytes."""
    return int(xxhash.xxh3_64_intdigest(data))


def digest_of_range(fd: int, offset: int, nbytes: int, name: str = "") -> int:
    """Returns the XXH3 of a range of an open file; other threads run meanwhile."""
    digest = ffi.new("uint8_t[]", lib.CAREFUL_DIGEST_BYTES_MAX)
    status = lib.careful_digest(fd, offset, nbytes, lib.CAREFUL_BLOCK_XXH3, digest)
    text = "the file shrank while it was being read" if status == -errno.ENODATA else ""
    check(status, name, text)
    return int.from_bytes(bytes(digest[0:status]), "big")


def prepare_read(fd: int, name: str) -> int:
    """Returns the descriptor to read a file by: `fd`, or a copy's (careful_prepare_read())."""
    copy = ffi.new("int *")
    check(lib.careful_prepare_read(fd, copy), name)
    if copy[0] < 0:
        return fd
    os.close(fd)
    return int(copy[0])


def temporary_name(path: str, tag: int = 0) -> str:
    """Returns a temporary name next to `path`, with a command's 64-bit tag; 0: a random one."""
    folder, name = os.path.split(path)
    stem = os.fsdecode(os.fsencode(name)[:_NAME_BYTES_MAX])
    tag = tag or int.from_bytes(os.urandom(8), "big")
    return os.path.join(folder, f".{stem}.careful-{tag:016x}.part")


def rename_new(source: str, target: str, folder: int) -> None:
    """Renames in an open directory. Raises FileExistsError: the name is taken."""
    raw = os.fsencode(source), os.fsencode(target)
    done = lib.renameat2(folder, raw[0], folder, raw[1], _RENAME_NOREPLACE)
    if done == 0:
        return
    error = ffi.errno
    if error not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(error, os.strerror(error), target)
    # The file system has no RENAME_NOREPLACE.
    os.link(source, target, src_dir_fd=folder, dst_dir_fd=folder)
    os.unlink(source, dir_fd=folder)


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the file system has nothing to sync
            raise
    finally:
        os.close(fd)


def _is_memory(fd: int) -> bool:
    """Reports whether a file lies in memory: only tmpfs, memfd and hugetlbfs have seals."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


def allocate(fd: int, nbytes: int, sparse: bool = False) -> None:
    """Sets a new file's size and allocates its blocks, if that is cheap.

    A file in memory (tmpfs) gets no blocks, only a check of the free room: to allocate its pages
    needs a quarter of a second per GiB. A sparse file gets no blocks, since parts will be holes.
    Raises OSError: there is no room.
    """
    if nbytes and not sparse and _is_memory(fd):
        room = os.fstatvfs(fd)
        if room.f_blocks and nbytes > room.f_bavail * room.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    elif nbytes and not sparse:
        try:
            os.posix_fallocate(fd, 0, nbytes)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    os.ftruncate(fd, nbytes)


def busy_error(name: str) -> CarefulError:
    """Returns the error for a partial file that another transfer has."""
    return CarefulError(errno.EBUSY, "another transfer of this file is in progress", name)


def lock(fd: int, name: str) -> None:
    """Locks a partial file until it is closed. Raises CarefulError: another transfer has it."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise busy_error(name) from None
        time.sleep(0.05)


def special_file_error(name: str) -> CarefulError:
    """Returns the error for a device, fifo or socket in a file's place."""
    return CarefulError(errno.ENOTSUP, "is a special file and is never replaced", name)


def _is_ours(st: os.stat_result) -> bool:
    is_ours = stat.S_ISREG(st.st_mode) and st.st_uid == os.geteuid()
    return is_ours and st.st_nlink <= 1


class Partial:
    """A file written under a temporary name, which disappears if the transfer fails. Raises
    CarefulError: it cannot be made, there is no room, or the name is taken.

    Args:
        path: its final name.
        nbytes: its size, allocated at once.
        mode: permission bits; the umask is applied.
        replace: whether to replace an existing file.
        sparse: whether to allocate no room.
        root: follow no symlink below it; None: no root.

    Attributes:
        folder: its directory.
        temporary: its temporary name.
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
        """Makes the file and locks it, so that no program cleans it up."""
        while True:
            fd = self._open(temporary_name(self.folder.name), os.O_EXCL)
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
            os.close(fd)  # another program removed it before the lock

    def _prepare(self, path: str, mode: int, replace: bool, root: str | None) -> None:
        self.path = path
        self.replace = replace
        self.fd = -1
        self._mode = mode & 0o777 & ~current_umask()
        with about(shown(path)):
            self.folder = Folder(path, root)
        try:
            self._check_name()
        except OSError as error:
            self.folder.close()
            raise from_os(error, shown(path)) from None

    def _check_name(self) -> None:
        existing = self.folder.stat()
        if existing is not None and stat.S_ISDIR(existing.st_mode):
            raise CarefulError(errno.EISDIR, "is a directory", shown(self.path))
        if existing is not None and not (
            stat.S_ISREG(existing.st_mode) or stat.S_ISLNK(existing.st_mode)
        ):
            raise special_file_error(shown(self.path))
        if not self.replace and self.folder.is_taken():
            raise exists_error(shown(self.path))

    def _open(self, temporary: str, flags: int) -> int:
        self.temporary = temporary
        flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(temporary, flags, 0o600, dir_fd=self.folder.fd)

    def _open_locked(self, temporary: str) -> int:
        """Opens and locks a file; repeats this if another transfer renamed it meanwhile."""
        while True:
            fd = self._open(temporary, 0)
            try:
                lock(fd, shown(self.path))
                mine = os.fstat(fd)
                named = os.stat(temporary, dir_fd=self.folder.fd, follow_symlinks=False)
                existing = self.folder.stat()
                if existing and mine.st_nlink > 1 and os.path.samestat(mine, existing):
                    # Its commit was killed between the two calls of rename_new().
                    os.unlink(temporary, dir_fd=self.folder.fd)
                elif not _is_ours(mine):
                    where = os.path.join(os.path.dirname(self.path), temporary)
                    raise CarefulError(errno.EPERM, "is not a partial file", shown(where))
                elif os.path.samestat(mine, named):
                    return fd
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
            self._check_name()  # the other transfer may have given its file this name

    def commit(self, sync: bool, mtime_ns: int | None = None, exact: bool = False) -> None:
        """Makes the file durable and gives it its name; does not sync the directory.

        mtime_ns: its time; None: unchanged. exact: whether it gets its own mode, not that of the
        file that it replaces. Raises CarefulError: a step failed.
        """
        try:
            os.fchmod(self.fd, self._mode if exact else self._kept_mode())
            if mtime_ns is not None:
                os.utime(self.fd, ns=(os.fstat(self.fd).st_atime_ns, mtime_ns))
            if sync:
                os.fsync(self.fd)
            folder, name = self.folder.fd, self.folder.name
            if self.replace:
                os.replace(self.temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                rename_new(self.temporary, name, folder)
        except FileExistsError:
            raise exists_error(shown(self.path)) from None
        except OSError as error:
            raise from_os(error, shown(self.path)) from None
        self.close()

    def _kept_mode(self) -> int:
        """Returns the mode of the replaced file, or a new file's own."""
        existing = self.folder.stat() if self.replace else None
        if existing is not None and stat.S_ISREG(existing.st_mode):
            return existing.st_mode & 0o777
        return self._mode

    def discard(self) -> None:
        """Removes the file, unless it has been committed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.folder.fd)
        self.folder.close()

    def close(self) -> None:
        os.close(self.fd)
        self.fd = -1
        self.folder.close()


def write_file(path: str, data: bytes, sync: bool, mode: int = 0o666) -> None:
    """Makes or replaces a file: complete, or not at all. `sync` makes it durable at once, and
    `mode` has the permission bits of a new file before the umask.
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
