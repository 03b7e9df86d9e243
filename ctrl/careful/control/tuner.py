"""Starting and ending `carefulctl tune auto` beside an instance.

Owns the process; what it does is tuning/loop.py's. Its log is `tuning.log` beside carefuld's.
"""

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

from careful.control import instances
from careful.control.instances import Instance
from careful.errors import CarefulError, from_os

#: How long it may take to begin, and to end before it is killed, seconds.
START_S, STOP_S = 60.0, 5.0
_BEGIN = "from careful.cli.start import main; main()"


def _private(name: str, flags: int) -> int:
    """Open a log as carefuld does: others cannot read it, and no link is followed."""
    fd = os.open(name, flags | os.O_NOFOLLOW, 0o640)
    os.fchmod(fd, 0o640)  # an earlier one may be wider
    return fd


def start(ifname: str, instance: Instance, config: Path | str | None = None) -> int:
    """Start one, detached, unless one runs already; its pid.

    config: the configuration file to read; None: the one that our environment names, if any.

    Raises:
        CarefulError: it ended, or did not begin in time.
    """
    if pid := instances.tuner(instance):
        return pid
    log = instance.directory / "tuning.log"
    # -P and cwd: no module of the current directory, where others may write, is imported.
    argv = [sys.executable, "-P", "-c", _BEGIN, "tune", "auto", ifname]
    argv += ["--instance", instance.name]
    if config := config or os.environ.get("CAREFUL_CONFIG"):
        argv += ["--config", str(Path(config).absolute())]
    try:
        with open(log, "wb", opener=_private) as out:
            process = subprocess.Popen(
                argv,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
    except OSError as error:
        raise from_os(error, str(log)) from None
    end = time.monotonic() + START_S
    while not (pid := instances.tuner(instance)):
        if process.poll() is not None:
            said = log.read_text(errors="replace").strip().removeprefix("carefulctl: ")
            raise CarefulError(errno.EIO, f"tune auto ended: {said}", ifname)
        if time.monotonic() > end:
            process.kill()
            process.wait()
            raise CarefulError(errno.ETIMEDOUT, "tune auto does not begin", ifname)
        time.sleep(0.02)
    return pid


def stop(instance: Instance) -> None:
    """End the one that runs, if any; plans stay as they are.

    Raises:
        CarefulError: not permitted.
    """
    pid = instances.tuner(instance)
    if pid in (0, instances.UNSEEN):  # an unseen one ends with its carefuld
        return
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            # The pidfd is taken: if it holds the lock now, it is no other process.
            if instances.tuner(instance) != pid:
                return
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
            if _has_ended(handle):
                return
    except PermissionError as error:
        raise from_os(error, f"tune auto {pid}") from None
    finally:
        os.close(handle)


def _has_ended(handle: int) -> bool:
    with DefaultSelector() as selector:
        selector.register(handle, EVENT_READ)
        return bool(selector.select(STOP_S))
