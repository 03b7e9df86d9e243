"""The errors of this package, and the one place that turns an errno into an exception.

A failure outside the program raises CarefulError, an OSError; its text is one line: what failed
and, if known, what to do. Unusable input raises InputError, a ValueError.
"""

from __future__ import annotations

import errno as errno_module
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Self, TypeVar

#: The largest errno.
_ERRNO_MAX = 4095
#: Meanings of errnos from careful; the others read like strerror().
_MEANINGS = {
    errno_module.EADDRINUSE: "all windows for peers are taken here (raise --peers of `up`)",
    errno_module.EUSERS: "all its windows for peers are taken (raise --peers of `up` there)",
    errno_module.EBADMSG: "the data's digest does not match",
    errno_module.ENOTCONN: "the connection has ended",
    errno_module.ECONNRESET: "the session was reset; the operation may have run",
    errno_module.EPROTONOSUPPORT: "it speaks another wire version (`carefulctl --version`)",
    errno_module.EPROTOTYPE: "one end speaks careful, the other traditional (`up --protocol`)",
    errno_module.EILSEQ: "only one of the two hosts sends lost frames again (`up --repair`)",
    errno_module.ENOPROTOOPT: "it seals frames differently than we do (`up --seal`)",
    errno_module.EKEYREJECTED: "it does not trust our key, or we have none (`carefulctl key`)",
    errno_module.ENOKEY: "no key is trusted at its address (`carefulctl key trust`)",
    errno_module.EKEYREVOKED: "its key is no longer trusted (`carefulctl key`)",
    errno_module.ENETUNREACH: "no route to it through this interface",
    errno_module.ENOTUNIQ: "that address is this host's own: name another host",
    errno_module.EHOSTUNREACH: "it cannot be reached",
    errno_module.ETIMEDOUT: "no answer in time",
    errno_module.EADDRNOTAVAIL: "it answers from another address, which carefuld's log names",
    errno_module.ECONNREFUSED: "nobody answers there: is careful up on that host? If it has "
    "several interfaces in one subnet, ask `carefulctl doctor` there",
    errno_module.EXDEV: "the path leads out of the exported tree",
    errno_module.ENOLINK: "the exported directory is not there (removed, moved or unmounted)",
    errno_module.ENOMEDIUM: "that host exports nothing (`carefulctl up IFACE --export DIR` there)",
    errno_module.ECOMM: "the network lost the same fragment 16 times",
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
#: A firewall that drops the handshake looks like a host that is off.
UNANSWERED = (
    f"no answer in time: is careful up there, and do both firewalls let its UDP port in ({LET_IN})?"
)

#: Failures of the connection or the peer: another file would fail alike.
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
    """Returns a text with control characters and undecodable bytes escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


#: Python makes a plain OSError of these; callers get a ConnectionError.
_UNCONNECTED = {
    errno_module.ENOTCONN,
    errno_module.EHOSTUNREACH,
    errno_module.ENETUNREACH,
    errno_module.ENETDOWN,
}


class Option(Enum):
    """Advice in an error: the words for the command line, and for callers in Python."""

    REPLACE = "-f", "replace=True"
    RECURSIVE = "-r", "recursive=True"
    CHECKSUM = "-c", "checksum=True"
    MAKE_PATH = "--mkpath", "make_path=True"
    RESTART = "--restart", "restart=True"
    FAIL_ON_LOSS = "--on-loss fail", "fail_on_loss=True"
    MAX_DELETE = "--max-delete ", "max_delete="
    AGAIN = "run the same command", "make the same call"


#: A text, or the parts of a text that names options.
Text = str | tuple[str | Option, ...]


def spelled(text: Text, in_python: bool = False) -> str:
    """Returns a text with its options in the words of the command, or of Python."""
    parts = (text,) if isinstance(text, str) else text
    return "".join(one.value[in_python] if isinstance(one, Option) else one for one in parts)


_Error = TypeVar("_Error", bound="CarefulError")
_kinds: dict[tuple[type, type], Any] = {}


def _kind(base: type[_Error], errno: int) -> type[_Error]:
    """Returns `base` mixed with the class that Python itself raises for an errno, if any."""
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
    """A failure: `errno`, and one line that names its subject.

    If Python has a class for the errno, the error belongs to that class, too: FileNotFoundError for
    a missing file, TimeoutError for no answer in time, ConnectionError for a host that cannot be
    reached or a session that ended.

    Args:
        errno: a positive errno; 0 if none fits.
        text: the reason; by default the meaning of the errno. Options in the text have their names
            of the command line until in_python() is called.
        what: the interface, queue, peer or file of the failure; also `filename`.
    """

    def __new__(cls, errno: int, text: Text = "", what: str = "") -> Self:
        return super().__new__(_kind(cls, errno), errno, spelled(text) or meaning(errno))

    def __init__(self, errno: int, text: Text = "", what: str = "") -> None:
        super().__init__()  # OSError took its arguments in __new__
        self.reason = spelled(text) or meaning(errno)
        self.parts: tuple[str | Option, ...] = (self.reason,) if isinstance(text, str) else text
        self.what = what
        self.filename = what or None

    def add(self, *parts: str | Option) -> None:
        """Appends to the reason."""
        self.parts = (*self.parts, "; ", *parts)
        self.reason = self.strerror = spelled(self.parts)

    def in_python(self) -> None:
        """Rewrites the reason with the options' names in Python."""
        self.reason = self.strerror = spelled(self.parts, in_python=True)

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}" if self.what else self.reason

    def __reduce__(self) -> tuple[object, ...]:
        named = getattr(type(self), "_mixed", type(self))  # importable by another process
        return named, (self.errno, self.reason, self.what), self.__dict__


class InputError(ValueError):
    """Input that cannot be used, with one line that says why.

    carefulctl shows that line alone. Any other ValueError is a fault of the program.
    """


class WithheldError(InputError):
    """A measurement withholds figures that a plan needs.

    Args:
        origin: the file of the measurement; "" if unknown.
        figures: their names.
        reason: why they are withheld.
        frame_bytes: payload of the largest frame that was measured; 0 if unknown.
    """

    def __init__(self, origin: str, figures: str, reason: str, frame_bytes: int = 0) -> None:
        self.figures, self.reason, self.frame_bytes = figures, reason, frame_bytes
        text = f"the measurement withholds {figures} ({reason})"
        super().__init__(f"{origin}: {text}" if origin else text)


class LossError(CarefulError):
    """The network lost or damaged data, and the user wanted no repair."""


class SilenceError(CarefulError):
    """A peer keeps its session, but its server answers nothing."""


class OtherReleaseError(CarefulError):
    """carefuld's socket has another number than this program's: one of them was upgraded."""


def is_debugging() -> bool:
    """Reports whether the user asked for tracebacks."""
    return bool(os.environ.get("CAREFUL_DEBUG"))


def meaning(errno: int) -> str:
    """Returns the meaning of a positive errno from careful."""
    if errno > _ERRNO_MAX:  # a peer may send any number
        return f"error {errno}"
    return _MEANINGS.get(errno) or os.strerror(errno)


def check(rc: int, what: str, text: str = "") -> int:
    """Returns `rc`, or raises CarefulError if `rc` is a negative errno.

    Args:
        rc: result of a function of the binding: 0, a count, or -errno.
        what: the interface, queue, peer or file of the call.
        text: the line that the C side wrote about the failure, if any.
    """
    if rc < 0:
        raise CarefulError(-rc, text, what)
    return rc


def from_os(error: OSError, what: str) -> CarefulError:
    """Returns a CarefulError about the file `what` from an error of the operating system.

    A connection's errno from a file system (FUSE, NFS) becomes EIO: only this file failed.
    """
    if isinstance(error, CarefulError):
        return error
    code = errno_module.EIO if error.errno in FATAL else error.errno or errno_module.EIO
    return CarefulError(code, error.strerror or str(error), what)


@contextmanager
def about(what: str) -> Iterator[None]:
    """Turns an OSError of the block into a CarefulError about the file `what`."""
    try:
        yield
    except OSError as error:
        raise from_os(error, what) from None


class EndedBySignal(BaseException):
    """A signal ended the work; unfinished files have been removed."""

    def __init__(self, signal_number: int) -> None:
        self.signal_number = signal_number
        super().__init__(f"ended by {signal.Signals(signal_number).name}")
