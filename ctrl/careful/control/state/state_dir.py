"""State that outlives `down` and a reboot: small JSON files in the state directory.

Owns the directory's path. careful/state.h, which carefuld also uses, writes whole files and rejects
files that others could have written. State is optional: a file that cannot be read counts as
missing, a file that cannot be written is skipped, and each error is reported once.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from careful._abi import error_text, ffi, lib
from careful.control.options.config import Config
from careful.jsonout import Json

#: The directory, unless the environment or [state] of careful.toml names another.
DEFAULT = Path("/var/lib/careful")
VARIABLE = "CAREFUL_STATE_DIR"
#: Largest file that is read; ours are a hundred times smaller.
BYTES_MAX = 4 << 20


def place(config: Config) -> Path:
    """Returns the state directory, which may not exist."""
    return Path(os.environ.get(VARIABLE) or config.state_directory or DEFAULT)


class StateDir:
    """JSON objects by file name.

    Args:
        path: the directory; made with the first file.
        warn: called once for each error, with a line about a file.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        self.path = path
        self._warn = warn
        self._warned: set[str] = set()

    def read(self, name: str) -> Json:
        """Returns the object with a name; empty if it is missing or rejected."""
        data, error = ffi.new("char[]", BYTES_MAX), ffi.new("struct careful_error *")
        names = os.fsencode(self.path), os.fsencode(name)
        size = lib.careful_state_read(*names, data, BYTES_MAX, error)
        if size < 0:
            if size != -errno.ENOENT:
                self._say(error_text(error))
            return {}
        try:
            content = json.loads(bytes(ffi.buffer(data, size)))
            if not isinstance(content, dict):
                raise ValueError
            return content
        except (ValueError, RecursionError):
            self._say(f"{self.path / name}: the file is damaged, and is ignored")
        return {}

    def write(self, name: str, data: Json) -> bool:
        """Writes an object as a whole or not at all; reports whether it is written.

        Not synced to the disk: a power failure loses the last write, but a tuner never waits for
        the disk.
        """
        text, error = json.dumps(data).encode() + b"\n", ffi.new("struct careful_error *")
        names = os.fsencode(self.path), os.fsencode(name)
        if lib.careful_state_write(*names, text, len(text), error):
            self._say(error_text(error))
            return False
        return True

    def _say(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(f"state {text}")
