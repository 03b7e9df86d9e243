"""What outlives `down` and a restart of the machine: small JSON files in the state directory.

Owns where that directory is, that a file in it is whole or absent, and that what somebody else
could have written is not believed. What is kept is its keepers' business; each gives its file a
name. Nothing fails for want of it: what cannot be read is absent, what cannot be written is not
kept, and either is said once. Calls config.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from careful.control.config import Config

#: Where it is, unless the environment or [state] of careful.toml names another.
DEFAULT = Path("/var/lib/careful")
VARIABLE = "CAREFUL_STATE_DIR"
#: Largest file that is read; ours are a hundred times smaller.
BYTES_MAX = 4 << 20


def place(config: Config) -> Path:
    """Where the state directory is, whether it exists or not."""
    return Path(os.environ.get(VARIABLE) or config.state_directory or DEFAULT)


class StateDir:
    """JSON objects by the names of their files.

    Args:
        path: of the directory; the first file that is written makes it.
        warn: told in a line, once, why a file is not believed or not kept.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self.path = path
        self._warn = warn
        self._warned: set[str] = set()

    def read(self, name: str) -> dict[str, Any]:
        """What is kept under a name; nothing where nothing is, or it cannot be believed."""
        try:
            folder = self._open()
        except OSError as error:
            if error.errno != errno.ENOENT:
                self._say(self.path, error.strerror)
            return {}
        try:
            found = json.loads(_read(folder, name))
            if not isinstance(found, dict):
                raise ValueError
            return found
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._say(self.path / name, error.strerror)
        except (ValueError, RecursionError):
            self._say(self.path / name, "is damaged, and is made anew")
        finally:
            os.close(folder)
        return {}

    def write(self, name: str, data: dict[str, Any]) -> bool:
        """Keep an object as a whole or not at all; whether it is kept.

        It may take until the file system next writes by itself to be on the disk: a loss of
        power costs what was kept last, and whoever changes a path must not wait for disks.
        """
        try:
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o755, parents=True)
            folder = self._open()
        except OSError as error:
            self._say(self.path, f"{error.strerror}: nothing is kept")
            return False
        try:
            _write(folder, name, json.dumps(data, indent=1).encode() + b"\n")
        except OSError as error:
            self._say(self.path / name, f"{error.strerror}: it is not kept")
            return False
        finally:
            os.close(folder)
        return True

    def _open(self) -> int:
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _check(os.fstat(folder))
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _say(self, path: Path, why: str | None) -> None:
        text = f"state {path}: {why}"
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)


def _check(found: os.stat_result) -> None:
    """Raise OSError where somebody else than root and us could have written it."""
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(errno.EPERM, f"belongs to user {found.st_uid}, and is not used")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others may write it, and it is not used")


def _read(folder: int, name: str) -> bytes:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(name, flags, dir_fd=folder)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is no regular file, and is not used")
        _check(found)
        if found.st_size > BYTES_MAX:
            raise OSError(errno.EFBIG, f"has more than {BYTES_MAX} bytes, and is not used")
        return file.read(BYTES_MAX)


def _write(folder: int, name: str, data: bytes) -> None:
    temporary = f".{name}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with suppress(FileNotFoundError):  # of a process that was killed and had our pid
        os.unlink(temporary, dir_fd=folder)
    try:
        with os.fdopen(os.open(temporary, flags, 0o644, dir_fd=folder), "wb") as file:
            file.write(data)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
