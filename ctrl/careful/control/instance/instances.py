"""Finds the instances that run on this machine, and the instance that a command means.

An instance is a directory under /run/careful with carefuld's socket and its pid file, locked while
carefuld lives. The lock names the owner: the number in the file is valid only in the PID namespace
that wrote it, and containers may share /run/careful. A socket that accepts connections while no
carefuld lives belongs to systemd, which is starting carefuld.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from careful.control.host import links, systemd_socket
from careful.errors import CarefulError, about, from_os

RUN = Path("/run/careful")
#: Time for carefuld to start serving, seconds; long, because the machine may be busy.
START_S = 60.0
#: The name of another queue of an instance, NAME+K (xsk_port.c).
_OTHER_QUEUE = re.compile(r"(.+)\+[1-9][0-9]*")
LOCKS = Path("/proc/locks")
#: Reads of LOCKS before a holder counts as unseen.
LOCKS_READS = 5
#: The pid of a process in a PID namespace that we cannot see.
UNSEEN = -1
#: Lock file in the instance's directory; held by the process that tunes the instance.
TUNER_LOCK = "tuning.lock"


def check_name(name: str) -> str:
    """Returns the name. Raises CarefulError if it cannot be part of a path."""
    if not name or name.startswith(".") or "/" in name or len(os.fsencode(name)) > 63:
        text = "an instance's name has 1 to 63 bytes, no / and no leading dot"
        raise CarefulError(errno.EINVAL, text, repr(name))
    return name


def _holder(fd: int) -> int:
    """Returns the pid that holds flock() on a file in our PID namespace, or UNSEEN.

    /proc/locks omits processes that this namespace cannot see. It is read a few times, because a
    long list is read in pieces and can miss a line while other locks change.
    """
    info = os.fstat(fd)
    major, minor = os.major(info.st_dev), os.minor(info.st_dev)
    file = f"{major:02x}:{minor:02x}:{info.st_ino}"
    with suppress(OSError):
        for line in (line for _ in range(LOCKS_READS) for line in LOCKS.read_text().splitlines()):
            words = line.split()  # "1: FLOCK ADVISORY WRITE 4306 fe:00:2614370 0 EOF"
            if words[1] == "FLOCK" and words[5] == file:
                return int(words[4])
    return UNSEEN


def _owner(path: Path) -> int:
    """Returns the pid that holds the lock on a file, UNSEEN, or 0 if nobody holds the lock.

    Also returns 0 for an empty file, because its carefuld does not serve yet.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return 0
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd) if _pid_in(path) else 0
    finally:
        os.close(fd)
    return 0


def _numbers_in(path: Path) -> list[int]:
    with suppress(OSError, ValueError):
        return [int(word) for word in path.read_text().split()]
    return []


def _pid_in(path: Path) -> int:
    return next(iter(_numbers_in(path)), 0)


def process(pid: int) -> str:
    """Names the process of an instance in messages."""
    return "a process of another PID namespace" if pid == UNSEEN else f"process {pid}"


def must_be_seen(name: str, pid: int) -> None:
    """Raises CarefulError if the process lives in a PID namespace that we cannot see."""
    if pid == UNSEEN:
        text = "its process runs in another PID namespace; run this command there"
        raise CarefulError(errno.EPERM, text, f"instance {name}")


@dataclass(frozen=True)
class Instance:
    """A carefuld, running or not.

    Attributes:
        pid: its process; 0 if it does not run; UNSEEN in a PID namespace that we cannot see.
        ifname: name of its interface, the present one if the interface is in our network
            namespace; "" if unknown.
        here: True if it is in our network namespace; None if we may not know.
        argv: its options at the start, or since the last change.
    """

    name: str
    pid: int = 0
    ifname: str = ""
    here: bool | None = None
    argv: tuple[str, ...] = ()

    @property
    def carefuld(self) -> str:
        """Names carefuld's process in messages."""
        return f"carefuld {'in another PID namespace' if self.pid == UNSEEN else self.pid}"

    @property
    def directory(self) -> Path:
        return RUN / self.name

    @property
    def socket(self) -> Path:
        return self.directory / "sock"

    @property
    def log(self) -> Path:
        """Its log; a link if the log outlives `down`."""
        return self.directory / "log"

    @property
    def log_shown(self) -> str:
        if "--foreground" in self.argv and not _option(self.argv, "--log", "--l"):
            return f"its standard error (journalctl -u {unit('carefuld', self.ifname)})"
        return str(self.log.resolve())


def unit(kind: str, name: str) -> str:
    """Returns the systemd unit of an instance, escaped like `systemd-escape` does.

    In a unit's name `-` stands for a slash (systemd.unit(5)).
    """
    escaped = re.sub(rb"[^0-9A-Za-z:_.]", lambda byte: b"\\x%02x" % byte[0][0], os.fsencode(name))
    return shlex.quote(f"{kind}@{escaped.decode()}")


def _option(argv: Sequence[str], name: str, shortest: str = "") -> str:
    """Returns the value of an option in a command line.

    shortest: the shortest abbreviation that getopt_long() accepts; by default the whole name.
    """
    for index, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if name.startswith(option) and option.startswith(shortest or name):
            return value if equals else "".join(argv[index + 1 : index + 2])
    return ""


def _is_shared(pid: int, kind: str) -> bool | None:
    """Reports whether a process shares our namespace of a kind; None if we may not know."""
    with suppress(OSError):
        ours = Path(f"/proc/self/ns/{kind}").stat()
        return os.path.samestat(Path(f"/proc/{pid}/ns/{kind}").stat(), ours)
    return None


def _is_here(pid: int) -> bool | None:
    return _is_shared(pid, "net")


def find(name: str) -> Instance:
    """Returns the instance with a name, running or not."""
    pid = _owner(RUN / check_name(name) / "pid")
    if not pid:
        return Instance(name)
    proc = Path(f"/proc/{pid}")
    argv: list[str] = []
    with suppress(OSError):
        argv = (proc / "cmdline").read_text(errors="surrogateescape").split("\0")
    with suppress(OSError):
        text = (RUN / name / "options").read_text(errors="surrogateescape")
        pid_text, *options = text.split("\0")
        argv = options if pid_text == str(_pid_in(RUN / name / "pid")) else argv
    ifname, here = _option(argv, "--ifname", "--if"), _is_here(pid)
    if here:
        ifname = ifname_now(name, ifname, pid)
    return Instance(name, pid, ifname, here, tuple(argv))


def starting(instance: Instance) -> str:
    """Returns a phrase if systemd is starting the instance's carefuld; else ""."""
    if instance.pid or not systemd_socket.listens(instance.socket):
        return ""
    return f"systemd is starting it (systemctl status {unit('carefuld', instance.name)})"


def coming() -> list[Instance]:
    """Returns instances that systemd is starting; its units name them after the interface."""
    return [replace(instance, ifname=instance.name) for instance in _all() if starting(instance)]


def remember(instance: Instance, argv: Sequence[str]) -> None:
    """Records that the instance runs with other options than at its start.

    Raises CarefulError if the file cannot be written.
    """
    path = instance.directory / "options"
    new = path.with_suffix(".new")
    with about(str(path)):
        new.write_text(
            "\0".join([str(_pid_in(instance.directory / "pid")), *argv]), errors="surrogateescape"
        )
        new.rename(path)


def first_of(name: str) -> str:
    """Returns the name of the instance that a queue belongs to."""
    match = _OTHER_QUEUE.fullmatch(name)
    return match[1] if match else name


def queues(instance: Instance) -> list[Instance]:
    """Returns each queue of an instance as an instance; the first is the instance itself."""
    count = int(_option(instance.argv, "--queues") or 1)
    if first_of(instance.name) != instance.name:
        count = 1
    return [instance, *(find(f"{instance.name}+{k}") for k in range(1, count))]


def other_queues(name: str) -> list[Instance]:
    """Returns all queues but the first, running or not, if they have files in RUN."""
    names = {path.name.removesuffix(".lock") for path in RUN.glob(f"{name}+*")}
    return [find(queue) for queue in sorted(names) if first_of(queue) == name]


@contextmanager
def changing(name: str) -> Iterator[None]:
    """Locks an instance for a command that starts, ends or clears it; others wait.

    The kernel frees a killed holder's lock, and the next command reuses the file. Raises
    CarefulError if the lock cannot be taken.
    """
    path = RUN / f".{check_name(name)}.changing"
    while True:
        try:
            RUN.mkdir(mode=0o755, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:  # another command removed the directory
            continue
        except OSError as error:
            raise from_os(error, str(path)) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(fd), path.stat()):
                break  # we locked the file that has the name
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)
        remove_file(RUN)


def owner_without_daemon(name: str) -> int:
    """Returns the pid of a program that owns the instance's queue without carefuld; 0: none."""
    pid = _owner(RUN / f"{check_name(name)}.lock")
    return pid if pid and pid != find(name).pid else 0


def mounts_differ(name: str) -> bool:
    """Reports whether an instance is known to run in another mount namespace than ours."""
    pid = find(name).pid or owner_without_daemon(name)
    return bool(pid) and _is_shared(pid, "mnt") is False


def tuner(instance: Instance) -> int:
    """Returns the pid of the process that tunes an instance (`tune auto`); 0: none."""
    return _owner(instance.directory / TUNER_LOCK)


@contextmanager
def holding(instance: Instance, lock: str, what: str) -> Iterator[None]:
    """Locks a task of an instance for this process.

    instance: a running instance; lock: a file in its directory; what: the task for messages, as in
    "is tuned". Raises CarefulError: another process has the lock, or it cannot be taken.
    """
    must_be_seen(instance.name, instance.pid)
    path = instance.directory / lock
    with about(str(path)):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.write(fd, f"{os.getpid()}\n".encode())
        yield
    except BlockingIOError:
        text = f"{what} already, by {process(_owner(path))}"
        raise CarefulError(errno.EBUSY, text, f"instance {instance.name}") from None
    finally:
        os.close(fd)


def ifname_now(name: str, ifname: str, pid: int | None = None) -> str:
    """Returns the present name of an instance's interface, by its number in the lock.

    ifname: the former name, returned if the lock has no number; pid: the process that must hold the
    lock, None for any process, even a dead one.
    """
    lock = RUN / f"{check_name(name)}.lock"
    numbers = _numbers_in(lock)
    with suppress(OSError):
        if len(numbers) == 2 and pid in (None, _owner(lock)):
            return socket.if_indextoname(numbers[1])
    return ifname


def uses(link: links.Link) -> bool:
    """Reports whether an instance of any name is on an interface."""
    for lock in RUN.glob("*.lock"):
        numbers = _numbers_in(lock)
        if numbers[1:] == [link.index] and _is_here(_owner(lock)):
            return True
    return False


def _all() -> list[Instance]:
    if not RUN.is_dir():
        return []
    return [find(path.name) for path in sorted(RUN.iterdir()) if path.is_dir()]


def running() -> list[Instance]:
    """Returns all running instances, without their further queues."""
    return [
        instance for instance in _all() if instance.pid and first_of(instance.name) == instance.name
    ]


def death(instance: Instance) -> str:
    """Returns how an instance ended that left its pid behind; "" for others."""
    pid = 0 if instance.pid else _pid_in(instance.directory / "pid")
    return f"carefuld died (process {pid}, log {instance.log_shown})" if pid else ""


def died() -> dict[str, str]:
    """Returns killed instances: name -> how carefuld ended, or that systemd restarts it."""
    deaths = {
        first_of(instance.name): reason
        for instance in reversed(_all())
        if (reason := death(instance))
    }
    return deaths | {instance.name: reason for instance in _all() if (reason := starting(instance))}


def need_root(what: str) -> None:
    """Raises CarefulError unless this is root."""
    if os.geteuid() != 0:
        raise CarefulError(errno.EPERM, "must be run as root (sudo)", what)


def remove_file(path: Path) -> bool:
    """Removes a file or an empty directory; reports whether it existed."""
    if not os.path.lexists(path):  # where all is read-only, its removal would fail with EROFS
        return False
    try:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EBUSY):
            return False
        raise from_os(error, str(path)) from None
    return True
