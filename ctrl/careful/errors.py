"""The errors of this package, and the one place where an errno becomes one.

Everything that fails for a reason outside the program raises CarefulError, an OSError,
whose text is one line that says what failed and, if known, what to do. Input that cannot be
used raises InputError, a ValueError. This module calls nothing.
"""

from __future__ import annotations

import errno as errno_module
import os
import signal
from enum import Enum
from typing import Any, Self, TypeVar

#: No errno is larger.
_ERRNO_MAX = 4095
#: What an errno means where careful returns it; others read as strerror() says.
_MEANINGS = {
    errno_module.EADDRINUSE: "all windows for peers are taken here (raise --peers of `up`)",
    errno_module.EUSERS: "all its windows for peers are taken (raise --peers of `up` there)",
    errno_module.EBADMSG: "the data's digest does not match",
    errno_module.ENOTCONN: "the connection has ended",
    errno_module.ECONNRESET: "the session was reset; the operation may have run",
    errno_module.EPROTONOSUPPORT: "it speaks another wire version (`carefulctl --version`)",
    errno_module.EPROTOTYPE: "one end speaks careful, the other traditional (`up --protocol`)",
    errno_module.EILSEQ: "lost frames are sent again by one of the two hosts alone (`up --repair`)",
    errno_module.ENOPROTOOPT: "its frames are sealed otherwise than ours, or not (`up --seal`)",
    errno_module.EKEYREJECTED: "it does not trust our key, or we have none (`carefulctl key`)",
    errno_module.ENOKEY: "no key is trusted at its address (`carefulctl key trust`)",
    errno_module.EKEYREVOKED: "its key is trusted no longer (`carefulctl key`)",
    errno_module.ENETUNREACH: "no route to it through this interface",
    errno_module.ENOTUNIQ: "that address is this host's own: name another host",
    errno_module.EHOSTUNREACH: "it cannot be reached",
    errno_module.ETIMEDOUT: "no answer in time",
    errno_module.EADDRNOTAVAIL: "it answers from another address, which carefuld's log names",
    errno_module.ECONNREFUSED: "nobody answers there: is careful up on that host? If it has "
    "several interfaces in one subnet, ask `carefulctl doctor` there",
    errno_module.EXDEV: "the path leads out of the exported tree",
    errno_module.ENOLINK: "the exported directory is not there (removed, moved or unmounted)",
    errno_module.EROFS: "it is read-only there: exported without :rw, or mounted read-only",
    errno_module.ENODEV: "the interface is gone",
    errno_module.ENODATA: "the source shrank while it was being read",
    errno_module.ENOSYS: "not available here",
}


#: The commands that let a UDP port through a host's firewall.
LET_IN = (
    "firewall-cmd --add-port={port}/udp (firewalld), ufw allow {port}/udp (ufw), or "
    "nft insert rule inet filter input udp dport {port} accept (neither)"
)

#: Failures that are the connection's or the peer's: no other file would fare better.
FATAL = {
    errno_module.ENOTCONN,
    errno_module.ETIMEDOUT,
    errno_module.EADDRNOTAVAIL,
    errno_module.ECONNREFUSED,
    errno_module.ECONNABORTED,
    errno_module.EHOSTUNREACH,
    errno_module.ENETUNREACH,
    errno_module.ENOTUNIQ,
    errno_module.ENETDOWN,
    errno_module.ENODEV,
}


def shown(text: str) -> str:
    """A text as it can be printed: control characters and undecodable bytes escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


#: Of these Python makes a plain OSError; to a program they are the connection's failure.
_UNCONNECTED = {
    errno_module.ENOTCONN,
    errno_module.EHOSTUNREACH,
    errno_module.ENETUNREACH,
    errno_module.ENETDOWN,
}


class Option(Enum):
    """What an error advises: the words for those who type commands, and for callers in Python."""

    REPLACE = "-f", "replace=True"
    RECURSIVE = "-r", "recursive=True"
    CHECKSUM = "-c", "checksum=True"
    MAKE_PATH = "--mkpath", "make_path=True"
    RESTART = "--restart", "restart=True"
    FAIL_ON_LOSS = "--on-loss fail", "fail_on_loss=True"
    MAX_DELETE = "--max-delete ", "max_delete="
    AGAIN = "run the same command", "make the same call"


#: A text, or the parts of one that names options.
Text = str | tuple[str | Option, ...]


def spelled(text: Text, in_python: bool = False) -> str:
    """Returns a text with its options in the words of the command, or of Python."""
    parts = (text,) if isinstance(text, str) else text
    return "".join(one.value[in_python] if isinstance(one, Option) else one for one in parts)


_Error = TypeVar("_Error", bound="CarefulError")
_kinds: dict[tuple[type, type], Any] = {}


def _kind(base: type[_Error], errno: int) -> type[_Error]:
    """`base`, mixed with the class that Python itself raises for an errno, if it has one."""
    builtin = ConnectionError if errno in _UNCONNECTED else type(OSError(errno, ""))
    if builtin is OSError or issubclass(base, builtin):
        return base
    if (base, builtin) not in _kinds:
        name = f"Careful{builtin.__name__}" if base is CarefulError else base.__name__
        space = {"__doc__": base.__doc__, "__module__": base.__module__, "_mixed": base}
        _kinds[base, builtin] = type(name, (base, builtin), space)
    kind: type[_Error] = _kinds[base, builtin]
    return kind


class CarefulError(OSError):
    """Something failed: `errno`, and one line that names what it failed on.

    Where Python has a class for the errno, the error is of that class as well: a file that
    is not there is a FileNotFoundError, no answer in time a TimeoutError, a host that
    cannot be reached or a session that ended a ConnectionError.

    Args:
        errno: a positive errno; 0 where none fits.
        text: the reason; by default what the errno means. Options in it are named as the command
            does, until in_python() is called.
        what: the interface, queue, peer or file that it is about; `filename` is the same.
    """

    def __new__(cls, errno: int, text: Text = "", what: str = "") -> Self:
        return super().__new__(_kind(cls, errno), errno, spelled(text) or meaning(errno))

    def __init__(self, errno: int, text: Text = "", what: str = "") -> None:
        super().__init__()  # OSError took its arguments when it was made
        self.reason = spelled(text) or meaning(errno)
        self.parts: tuple[str | Option, ...] = (self.reason,) if isinstance(text, str) else text
        self.what = what
        self.filename = what or None

    def add(self, *parts: str | Option) -> None:
        """Adds to the reason what else is to be said."""
        self.parts = (*self.parts, "; ", *parts)
        self.reason = self.strerror = spelled(self.parts)

    def in_python(self) -> None:
        """Names options as callers in Python do."""
        self.reason = self.strerror = spelled(self.parts, in_python=True)

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}" if self.what else self.reason

    def __reduce__(self) -> tuple[object, ...]:
        named = getattr(type(self), "_mixed", type(self))  # what another process can import
        return named, (self.errno, self.reason, self.what), self.__dict__


class InputError(ValueError):
    """What the user gave cannot be used: one line that says why.

    carefulctl shows that line alone. Any other ValueError is a fault of the program.
    """


class LossError(CarefulError):
    """The network lost or damaged something, and the user wanted no repair."""


class SilenceError(CarefulError):
    """A peer keeps its session, and its server answers nothing."""


class OtherReleaseError(CarefulError):
    """carefuld's socket has another number than this program's: one of the two was upgraded."""


def is_debugging() -> bool:
    """Reports whether the user asked where in the program errors come from."""
    return bool(os.environ.get("CAREFUL_DEBUG"))


def meaning(errno: int) -> str:
    """What a positive errno means where careful returns it."""
    if errno > _ERRNO_MAX:  # a peer may say any number
        return f"error {errno}"
    return _MEANINGS.get(errno) or os.strerror(errno)


def check(rc: int, what: str, text: str = "") -> int:
    """Return `rc`, or raise CarefulError if it is a negative errno.

    Args:
        rc: what a function of the binding returned: 0, a count, or -errno.
        what: the interface, queue, peer or file that the call was about.
        text: the line that the C side wrote about the failure, if it did.

    Raises:
        CarefulError: rc is negative.
    """
    if rc < 0:
        raise CarefulError(-rc, text, what)
    return rc


def from_os(error: OSError, what: str) -> CarefulError:
    """A CarefulError about the file `what` from an error of the operating system.

    Where a file system (FUSE, NFS) says what a connection would, it is EIO: that file's failure.
    """
    if isinstance(error, CarefulError):
        return error
    code = errno_module.EIO if error.errno in FATAL else error.errno or errno_module.EIO
    return CarefulError(code, error.strerror or str(error), what)


class Ended(BaseException):
    """A signal ended what was under way; what was unfinished has been removed."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
