"""What outlives `down` and a restart of the machine: small JSON files in the state directory.

Owns where that directory is. That a file in it is whole or absent, and that what somebody else
could have written is not believed, is the library's (careful/state.h), for carefuld keeps files
there, too. What is kept is its keepers' business; each gives its file a name. Nothing fails for
want of it: what cannot be read is absent, what cannot be written is not kept, and either is said
once. Calls config and the binding.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

from careful._abi import CData, ffi, lib
from careful.control.config import Config
from careful.jsonout import Json

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

    def read(self, name: str) -> Json:
        """What is kept under a name; nothing where nothing is, or it cannot be believed."""
        data, error = ffi.new("char[]", BYTES_MAX), ffi.new("struct careful_error *")
        where = os.fsencode(self.path), os.fsencode(name)
        got = lib.careful_state_read(*where, data, BYTES_MAX, error)
        if got < 0:
            if got != -errno.ENOENT:
                self._say(error)
            return {}
        try:
            found = json.loads(bytes(ffi.buffer(data, got)))
            if not isinstance(found, dict):
                raise ValueError
            return found
        except (ValueError, RecursionError):
            self._say(f"{self.path / name}: it is damaged, and is made anew")
        return {}

    def write(self, name: str, data: Json) -> bool:
        """Keep an object as a whole or not at all; whether it is kept.

        A loss of power costs what was kept last: whoever changes a path must not wait for disks.
        """
        text, error = json.dumps(data).encode() + b"\n", ffi.new("struct careful_error *")
        where = os.fsencode(self.path), os.fsencode(name)
        if lib.careful_state_write(*where, text, len(text), error):
            self._say(error)
            return False
        return True

    def _say(self, why: str | CData) -> None:
        said = why if isinstance(why, str) else ffi.string(why.text).decode(errors="replace")
        if said not in self._warned:
            self._warned.add(said)
            self._warn(f"state {said}")
