"""Starts and ends `carefulctl tune auto` for an instance; its log is `tuning.log`."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from careful.closing import descriptor
from careful.control.instance import instances
from careful.control.instance.instances import Instance
from careful.errors import CarefulError, about

#: Time to begin, and time to end before it is killed, seconds.
START_S, STOP_S = 60.0, 5.0
_BEGIN = "from careful.cli.start import main; main()"


def _private(name: str, flags: int) -> int:
    """Opens a log like carefuld: others cannot read it, and links are not followed."""
    fd = os.open(name, flags | os.O_NOFOLLOW, 0o640)
    os.fchmod(fd, 0o640)  # an older log may have other permissions
    return fd


def start(ifname: str, instance: Instance, config: Path | str | None = None) -> int:
    """Starts a tuner, detached, unless one runs already; returns its pid.

    config: the configuration file; None: $CAREFUL_CONFIG, if set. Raises CarefulError if the tuner
    ends or does not start in time.
    """
    if pid := instances.tuner(instance):
        return pid
    log = instance.directory / "tuning.log"
    # -P and cwd: no module of the current directory, where others may write, is imported.
    argv = [sys.executable, "-P", "-c", _BEGIN, "tune", "auto", ifname]
    argv += ["--instance", instance.name]
    if config := config or os.environ.get("CAREFUL_CONFIG"):
        argv += ["--config", str(Path(config).absolute())]
    with about(str(log)), open(log, "wb", opener=_private) as out:
        process = subprocess.Popen(
            argv,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_S
    while not (pid := instances.tuner(instance)):
        if process.poll() is not None:
            output = log.read_text(errors="replace").strip().removeprefix("carefulctl: ")
            raise CarefulError(errno.EIO, f"tune auto ended: {output}", ifname)
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise CarefulError(errno.ETIMEDOUT, "tune auto does not start", ifname)
        time.sleep(0.02)
    return pid


def stop(instance: Instance) -> None:
    """Ends the running tuner, if any; plans stay. Raises CarefulError if not permitted."""
    pid = instances.tuner(instance)
    if pid in (0, instances.UNSEEN):  # an unseen tuner ends with its carefuld
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with descriptor(handle), about(f"tune auto {pid}"):
        for number in (signal.SIGTERM, signal.SIGKILL):
            # We hold the pidfd: if the pid holds the lock now, it was not reused.
            if instances.tuner(instance) != pid:
                return
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            with DefaultSelector() as selector:
                selector.register(handle, EVENT_READ)
                if selector.select(STOP_S):
                    return
