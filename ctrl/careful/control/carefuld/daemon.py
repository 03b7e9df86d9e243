"""Starts and stops carefuld, and removes the leftovers of one that was killed.

Owns the process and its leftovers: pinned maps, run directory, pfifo and steering rules.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from careful._abi import lib
from careful.closing import descriptor
from careful.control.carefuld import needs, tuner
from careful.control.host import ethtool, links, steer
from careful.control.instance import choice, instances, maps
from careful.control.instance.instances import RUN, START_S, Instance, remove_file
from careful.control.options import command_line, exports
from careful.control.options.up_options import UpOptions
from careful.control.state import state_dir
from careful.errors import CarefulError, about, from_os

#: Time for carefuld to end before it is killed, seconds.
STOP_S = 5.0
_LOOK_S = 0.1  # between two checks of a carefuld that is ending
_EXIT_S = 1.0  # from freeing its last resource to its exit


def executable() -> Path:
    """Finds carefuld: in the package, next to this Python, or in PATH.

    Raises CarefulError if it is nowhere.
    """
    folders = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    for folder in (Path(__file__).parents[2] / "bin", *folders):
        if os.access(folder / "carefuld", os.X_OK, effective_ids=True):
            return folder / "carefuld"
    if found := shutil.which("carefuld"):
        return Path(found)
    text = "is neither installed with this package nor in PATH"
    raise CarefulError(errno.ENOENT, text, "carefuld")


def _is_readable(fd: int, seconds: float) -> bool:
    """Reports whether a descriptor becomes readable in time; select() refuses large numbers."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1e3))


def _read_line(fd: int, deadline: float) -> str | None:
    """Reads a line from a pipe; "" at its end, None at the deadline."""
    text = b""
    while not text.endswith(b"\n"):
        if not _is_readable(fd, max(0.0, deadline - time.monotonic())):
            return None
        data = os.read(fd, 4096)
        if not data:
            return ""
        text += data
    return text.decode(errors="replace").strip()


def _last_line(log: Path) -> str:
    with suppress(OSError, IndexError):
        return f": {log.read_text(errors='replace').splitlines()[-1]}"
    return ""


def _kill_unready(process: subprocess.Popen[bytes]) -> None:
    """Kills a carefuld that is not ready in time: the waiting parent and its child."""
    with suppress(OSError, ValueError):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        for pid in children.split():
            os.kill(int(pid), signal.SIGKILL)
    process.kill()
    process.communicate()


def _argv(
    program: Path, ifname: str, instance: Instance, options: UpOptions, state: Path
) -> list[str]:
    where = ["--ifname", ifname, "--instance", instance.name]
    where += ["--run-dir", str(instance.directory), "--state-dir", str(state)]
    return [str(program), *where, *command_line.words(options)]


def _log_of(instance: Instance, state: Path) -> Path:
    """Returns the log's path: in the state directory, so that the log outlives a run.

    The log is next to the socket if others may write to the state directory, or if its file system
    is full or read-only.
    """
    log = state / f"{instance.name}.log"
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with suppress(OSError):
        state.mkdir(mode=0o755, parents=True, exist_ok=True)
        info = state.stat()
        if info.st_uid == os.geteuid() and not info.st_mode & 0o022:
            os.close(os.open(log, flags, 0o640))
            return log
    return instance.log


def launch(ifname: str, instance: Instance, options: UpOptions, state: Path) -> None:
    """Starts carefuld detached, with state directory `state`; returns once it serves.

    Raises CarefulError, with carefuld's reason, if it ends or is not ready in time.
    """
    program, log = executable(), _log_of(instance, state)
    read_end, write_end = os.pipe()
    try:
        argv = _argv(program, ifname, instance, options, state)
        process = subprocess.Popen(
            [*argv, "--log", str(log), "--ready-fd", str(write_end)],
            cwd="/",  # carefuld must not keep our directory from being unmounted
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[write_end],
            start_new_session=True,
        )
        os.close(write_end)
        write_end = -1
        try:
            line = _read_line(read_end, time.monotonic() + START_S)
        except KeyboardInterrupt:
            _kill_unready(process)
            raise
    except OSError as error:
        raise from_os(error, str(program)) from None
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)
    if line is None:
        _kill_unready(process)
        text = f"carefuld was not ready within {START_S:.0f} s{_last_line(log)}"
        raise CarefulError(errno.ETIMEDOUT, text, ifname)
    stderr = process.communicate()[1].decode(errors="replace").strip()
    if line == "ready":
        with suppress(OSError):
            if log != instance.log:
                instance.log.symlink_to(log)
        return
    reason = line.removeprefix("error: ") or stderr.removeprefix("carefuld: ")
    raise CarefulError(errno.EIO, reason or f"carefuld died{_last_line(log)}")


def _is_carefuld(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "carefuld"
    return False


def _started(name: str) -> Instance:
    """Returns an instance by name, after any start by a service manager has finished."""
    deadline = time.monotonic() + START_S
    while True:
        instance = instances.find(name)
        owner = 0 if instance.pid else instances.owner_without_daemon(name)
        if not owner or not _is_carefuld(owner) or time.monotonic() >= deadline:
            return instance
        time.sleep(_LOOK_S)


def _must_not_be_starting(instance: Instance) -> None:
    """Raises CarefulError if systemd is starting the instance: that start may wait for us."""
    if reason := instances.starting(instance):
        text = f"{reason}; first: systemctl stop {instances.unit('carefuld', instance.name)}"
        raise CarefulError(errno.EBUSY, text, f"instance {instance.name}")


def _is_up(instance: Instance, link: links.Link, options: UpOptions) -> bool:
    """Reports whether the instance runs with these options.

    Raises CarefulError if its options differ, a program owns it, or systemd is starting it.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):  # systemd has not started us by a socket
        _must_not_be_starting(instance)
    if pid := instances.owner_without_daemon(instance.name):
        text = f"is in use by {instances.process(pid)}; end it, or choose another --instance"
        raise CarefulError(errno.EBUSY, text, f"instance {instance.name}")
    if not instance.pid:
        return False
    text, down = f"is already up on {instance.ifname} ({instance.carefuld})", ""
    if instance.ifname != link.name:
        down = ", or choose another --instance"
    elif instance.here is False:
        text += ", in another network namespace"
        down = f" --instance {instance.name}, or choose another --instance"
    else:
        running = command_line.read(instance.argv)
        differing = command_line.differences(options, running)
        if differing:
            text += f", with other options: {'; '.join(differing.values())}"
        elif link.xdp_program is None:
            text += ", but its XDP program was removed"
        else:
            return True
    text += f"; first: carefulctl down {instance.ifname}{down}"
    raise CarefulError(errno.EBUSY, text, f"instance {instance.name}")


def _clear_refused(instance: Instance, ifname: str) -> None:
    with suppress(CarefulError):
        now = instances.find(instance.name)
        if not now.pid and not instances.owner_without_daemon(now.name):
            clear(now, ifname)


@dataclass(frozen=True)
class Up:
    """Result of up(): the running instance, and whether it ran before."""

    instance: Instance
    already: bool


def checked(ifname: str, name: str, options: UpOptions) -> UpOptions:
    """Returns the options after the checks that `up` makes before it looks at running instances.

    Raises CarefulError that names the fault.
    """
    if instances.first_of(name) != name:
        text = "this name means queue K of an instance (NAME+K); choose another"
        raise CarefulError(errno.EINVAL, text, f"instance {name}")
    links.find(ifname)
    instances.need_root(f"up {ifname}")
    options.agree()
    needs.of_the_machine(ifname, name, options)
    return UpOptions(export=exports.check(options.export)).over(options)


def _steer(ifname: str, instance: Instance, options: UpOptions) -> None:
    if ethtool.driver_info(ifname).rx_queues > 1:
        port, queue = options.port or int(lib.CAREFUL_PORT_DEFAULT), options.queue or 0
        queues = [(port + k, queue + k) for k in range(options.queues or 1)]
        steer.add(ifname, queues, instance.directory / "steering")


def up(ifname: str, name: str, options: UpOptions, state: Path = state_dir.DEFAULT) -> Up:
    """Brings careful up on an interface; an instance with the same options keeps running.

    options: those of the command line and the configuration together. Raises CarefulError: names
    the fault and what to do.
    """
    options = checked(ifname, name, options)
    with instances.changing(name):
        link = links.find(ifname)  # looked up again under the lock
        instance = _started(name)
        if _is_up(instance, link, options):
            return Up(instance, already=True)
        clear(instance, ifname)
        try:
            _steer(ifname, instance, options)
            launch(link.name, instance, options, state)
        except (CarefulError, KeyboardInterrupt):
            _clear_refused(instance, ifname)
            raise
        return Up(instances.find(name), already=False)


def become(ifname: str, name: str, options: UpOptions, state: Path = state_dir.DEFAULT) -> NoReturn:
    """Turns this process into carefuld for a service manager; the log goes to standard error.

    Does not return; down() clears what carefuld leaves. Raises CarefulError like up(), and if the
    instance is up already.
    """
    options = checked(ifname, name, options)
    program = executable()
    with instances.changing(name):
        link = links.find(ifname)
        instance = _started(name)
        if _is_up(instance, link, options):
            text = f"is already up ({instance.carefuld}); first: carefulctl down {ifname}"
            raise CarefulError(errno.EBUSY, text, f"instance {name}")
        clear(instance, ifname)
        _steer(ifname, instance, options)
    argv = [*_argv(program, link.name, instance, options, state), "--foreground"]
    with about(str(program)):
        os.execv(program, argv)


@dataclass
class Cleared:
    """Leftovers that clear() found and removed."""

    pins: int = 0
    files: int = 0
    qdisc: bool = False
    rules: int = 0

    def __bool__(self) -> bool:
        return bool(self.pins or self.files or self.qdisc or self.rules)


def _clear_directory(path: Path, kept: Path | None = None) -> int:
    count = 0
    if path.is_dir() and not path.is_symlink():
        count = sum(remove_file(entry) for entry in path.iterdir() if entry != kept)
        remove_file(path)
    return count


def clear(instance: Instance, ifname: str) -> Cleared:
    """Removes what an ended instance left; a socket that belongs to systemd stays.

    Args:
        instance: the instance; only its name is used.
        ifname: the interface's name when the instance was brought up. Its pfifo and steering rules
            are removed, unless another instance uses the interface.

    Raises CarefulError: something cannot be removed.
    """
    ifname = instances.ifname_now(instance.name, ifname)
    done = Cleared()
    done.rules = steer.remove(ifname, instance.directory / "steering")
    others = instances.other_queues(instance.name)
    for queue in others:
        _end_process(queue)
    for queue in (instance, *others):
        done.pins += _clear_directory(maps.pins(queue.name))
        socket = queue.socket if instances.starting(instances.find(queue.name)) else None
        done.files += _clear_directory(queue.directory, socket)
        done.files += remove_file(RUN / f"{queue.name}.lock")
    for parent in (maps.PINS, RUN):
        remove_file(parent)
    with suppress(CarefulError):  # the interface may be gone
        link = links.find(ifname)
        if not instances.uses(link):
            done.qdisc = links.remove_our_qdisc(link)
    return done


def _wait_for_end(handle: int, name: str, seconds: float) -> str:
    """Waits for a carefuld to end; returns "ended", "left" (Down.process), or "" after the time."""
    deadline = time.monotonic() + seconds
    while not _is_readable(handle, _LOOK_S):
        if not instances.find(name).pid:
            return "ended" if _is_readable(handle, _EXIT_S) else "left"
        if time.monotonic() >= deadline:
            return ""
    return "ended"


def _end_process(instance: Instance) -> str:
    """Asks a carefuld to end, then kills it; returns "ended", "left" or "killed"."""
    if not instance.pid:
        return ""
    instances.must_be_seen(instance.name, instance.pid)
    try:
        handle = os.pidfd_open(instance.pid)
    except ProcessLookupError:
        return "ended"
    with descriptor(handle), about(f"carefuld {instance.pid}"):
        # We hold the pidfd: from here on the pid cannot be reused.
        if instances.find(instance.name).pid != instance.pid or not _is_carefuld(instance.pid):
            text = f"process {instance.pid} holds its lock and is not a carefuld; end it"
            raise CarefulError(errno.EBUSY, text, f"instance {instance.name}")
        for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            if end := _wait_for_end(handle, instance.name, patience_s):
                return "killed" if (end, number) == ("ended", signal.SIGKILL) else end
    raise CarefulError(errno.ETIMEDOUT, "does not exit", f"carefuld {instance.pid}")


@dataclass(frozen=True)
class Down:
    """Result of down(): the process's end, and the leftovers that were cleared.

    process: "ended"; "killed"; "" if carefuld did not run; "left" if carefuld has freed everything
    but waits for a file system that hangs; "up" if it runs and was left alone.
    """

    process: str
    cleared: Cleared


def down(ifname: str, name: str | None, dead: bool = False) -> Down:
    """Ends the carefuld of an interface and clears what is left.

    name: the instance's name, by option or CAREFUL_INSTANCE; dead: only clears what a dead instance
    left, so a running instance stays. Raises CarefulError: no such interface or instance, or it
    cannot be ended.
    """
    instances.need_root(f"down {ifname}")
    instance = choice.on_interface(ifname, name)
    if not instance.pid and not instance.directory.exists():
        links.find(ifname)
    with instances.changing(instance.name):
        instance = instances.find(instance.name) if dead else _started(instance.name)
        pid = instances.owner_without_daemon(instance.name)
        if dead and (instance.pid or pid):
            return Down("up", Cleared())
        if not instance.pid and pid:
            what = "a carefuld that does not serve" if _is_carefuld(pid) else "not a carefuld"
            text = f"is in use by {instances.process(pid)} ({what}); end it"
            raise CarefulError(errno.EBUSY, text, f"instance {instance.name}")
        if not dead:
            _must_not_be_starting(instance)
        for queue in (instance, *instances.other_queues(instance.name)):
            tuner.stop(queue)
        # Read before the process ends: its lock holds the interface's number.
        ifname = instances.ifname_now(instance.name, instance.ifname or ifname)
        end = _end_process(instance)
        return Down(end, clear(instance, ifname))
